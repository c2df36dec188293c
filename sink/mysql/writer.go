package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

var errClosed = errors.New("the writer is closed")

// A writer owns one partition.
type writer struct {
	sink      *Sink
	partition string
	token     string // names the writer in perigee_owners
	plan      plan

	// lanes is held for reading by every write under way, and for writing by a
	// takeover from itself. It guards id and epoch.
	lanes sync.RWMutex
	id    uint64 // of the row in perigee_owners
	epoch uint64

	mu      sync.Mutex
	done    event.Ranges  // committed, without fingerprints
	past    history       // the same as rows of perigee_ranges
	busy    []event.Range // being written
	idle    chan struct{} // closed when a range stops being busy
	lost    bool          // a write may have been committed or not
	ended   error         // why the writer is of no more use
	spare   []*batch
	commits int
	folding bool

	sessions []*session // that no write uses now
	taken    [slots]bool
	inserts  bool // LOAD DATA is of no use here
	misloads int  // in a row
}

// Close implements sink.Writer.
func (w *writer) Close() error {
	w.end(errClosed)
	w.forgetAll()
	return nil
}

func (w *writer) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = why
	}
}

// Write implements sink.Writer.
func (w *writer) Write(ctx context.Context, out *event.Output) error {
	if err := w.claim(ctx, out.Range); err != nil {
		return w.sink.explain("writing "+out.Range.String(), err)
	}
	defer w.release(out.Range)
	err := w.settle(ctx)
	if err == nil {
		err = w.write(ctx, out)
	}
	if err != nil && ctx.Err() == nil {
		// Whoever takes over ends connections: ask at once whether that is why.
		if why := w.settle(ctx); errors.Is(why, sink.ErrFenced) {
			err = why
		}
	}
	if errors.Is(err, sink.ErrFenced) {
		w.end(sink.ErrFenced)
		w.forgetAll()
		return sink.ErrFenced
	}
	if _, ok := errors.AsType[*sink.RowErrors](err); ok {
		return err
	}
	if cancelled := ctx.Err(); cancelled != nil && err != nil {
		return cancelled
	}
	return w.sink.explain(fmt.Sprintf("writing %v to table %s", out.Range, w.sink.config.Table), err)
}

// claim waits until no other write is at work on positions of r.
func (w *writer) claim(ctx context.Context, r event.Range) error {
	for {
		w.mu.Lock()
		err, idle := w.ended, w.idle
		overlaps := func(b event.Range) bool { return b.First < r.End() && r.First < b.End() }
		free := !slices.ContainsFunc(w.busy, overlaps)
		if err == nil && free && ctx.Err() == nil {
			w.busy = append(w.busy, event.Range{First: r.First, Count: r.Count})
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}

func (w *writer) release(r event.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.busy, func(b event.Range) bool { return b.First == r.First && b.Count == r.Count })
	w.busy = slices.Delete(w.busy, i, i+1)
	close(w.idle)
	w.idle = make(chan struct{})
}

// settle finds out what became of writes whose end nobody saw. It comes after
// claim: whoever had the same positions before has noted by then what it lost.
func (w *writer) settle(ctx context.Context) error {
	if !w.isLost() {
		return nil
	}
	w.lanes.Lock()
	defer w.lanes.Unlock()
	if !w.isLost() {
		return nil
	}
	if _, err := w.renew(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = false
	return nil
}

func (w *writer) isLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *writer) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
}

// write lands what is missing of out, or finds the rows that can't.
func (w *writer) write(ctx context.Context, out *event.Output) error {
	w.lanes.RLock()
	defer w.lanes.RUnlock()
	missing, b := w.begin(out)
	defer w.spareBatch(b)
	if len(missing) == 0 {
		return nil
	}
	s, err := w.session(ctx)
	if err != nil {
		return err
	}
	if err = w.land(ctx, s, b, missing); err == nil {
		w.committed(ctx, s.conn, missing)
		w.keep(s)
		return nil
	}
	verdict := judge(err)
	if verdict == unknown {
		w.lose()
		w.forget(s)
		return err
	}
	defer w.keep(s)
	rollBack(ctx, s.conn)
	if verdict == refused {
		err = w.refuse(ctx, s.conn, b, err)
	}
	if _, rows := errors.AsType[*sink.RowErrors](err); !rows && judge(err) == unknown {
		w.lose()
	}
	return err
}

// begin returns what the sink has not of out, and a batch of the rows of that.
func (w *writer) begin(out *event.Output) (event.Ranges, *batch) {
	w.mu.Lock()
	missing := event.Ranges(w.done.Missing(out.Range))
	b := new(batch)
	if n := len(w.spare); n > 0 {
		b, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	w.mu.Unlock()
	b.choose(out, missing)
	return missing, b
}

// spareBatch keeps a batch's memory for the next write, unless it has become huge.
func (w *writer) spareBatch(b *batch) {
	b.columns = nil
	if cap(b.buf) > 2*largeStatement {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = append(w.spare, b)
}

const (
	startStatement  = "START TRANSACTION"
	commitStatement = ";COMMIT"
)

// land writes rows and ranges in one transaction.
func (w *writer) land(ctx context.Context, s *session, b *batch, missing event.Ranges) error {
	if !w.loads(s, b) {
		return w.insert(ctx, s, b, missing)
	}
	refusal := w.load(ctx, s, b, missing)
	if judge(refusal) != refused {
		if refusal == nil {
			w.loaded(nil, nil)
		}
		return refusal
	}
	rollBack(ctx, s.conn)
	err := w.insert(ctx, s, b, missing)
	w.loaded(refusal, err)
	return err
}

// loads tells whether a batch goes in by LOAD DATA.
func (w *writer) loads(s *session, b *batch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.load != "" && !w.inserts && s.loading != "" && len(b.rows) > 0
}

// committed notes what is now durable.
func (w *writer) committed(ctx context.Context, conn *sql.Conn, ranges event.Ranges) {
	w.mu.Lock()
	for _, r := range ranges {
		w.past.add(r, time.Now())
		w.done.Add(event.Range{First: r.First, Count: r.Count})
	}
	w.commits++
	due := w.commits%foldEvery == 0 && !w.folding
	w.mu.Unlock()
	if due {
		w.fold(ctx, conn)
	}
}

// endTimeout is how long a server may take to roll back before its connection
// is given up, which rolls back too.
const endTimeout = 5 * time.Second

// rollBack ends a transaction that failed, also when ctx is cancelled.
func rollBack(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		discard(conn)
	}
}

// discard makes sure that a connection is closed and not used again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
