// Package ledger is the part of an exactly-once sink that does not depend on
// the kind of database: what the writer of a partition knows of the positions
// that are committed, and what it does when it no longer knows.
//
// When a connection is lost in a write, nobody knows whether it was committed.
// The writer then takes the partition over from itself: what was still under way
// is fenced, and what was committed is read.
//
// A Writer is safe for concurrent use.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A Book is what a database keeps of one partition for the one who has opened
// it. Land and Has are called by several goroutines at the same time, Renew by one
// while nothing else is called.
type Book interface {
	// Renew takes the partition over from the writer itself and returns what is
	// committed. When somebody else has it, that is sink.ErrFenced.
	Renew(ctx context.Context) ([]Entry, error)

	// Land commits rows, and ranges with their fingerprints, in one transaction.
	// sink.ErrFenced and *sink.RowErrors say that nothing was; so does every error
	// that is not Doubtful.
	Land(ctx context.Context, rows *Rows, ranges []event.Range) error

	// Has tells whether r, which the writer has once seen committed, is so still.
	// When the partition is not the writer's any more, that is sink.ErrFenced.
	Has(ctx context.Context, r event.Range) (bool, error)

	// Fold replaces the entries that lie in r by r, unless fenced.
	Fold(ctx context.Context, r event.Range) error

	// Doubtful tells whether an error leaves open what became of its transaction.
	Doubtful(err error) bool
}

// Rows are those rows of an output that are to be written.
type Rows struct {
	Output  *event.Output // whose rows they are
	Columns *event.Columns
	Index   []int // of rows in Output and Columns, ascending
}

// choose sets the rows that come from positions of the missing ranges.
func (r *Rows) choose(out *event.Output, missing event.Ranges) {
	r.Output, r.Columns, r.Index = out, out.Columns, r.Index[:0]
	all := missing.Covers(out.Range.First, out.Range.End())
	for row := range out.Len() {
		if all || missing.Has(out.Position(row)) {
			r.Index = append(r.Index, row)
		}
	}
}

var errClosed = errors.New("the writer is closed")

// A Writer owns one partition. It implements sink.Writer.
type Writer struct {
	book Book
	log  *slog.Logger

	// lanes is held for reading by every write under way, and for writing by a
	// takeover from itself.
	lanes sync.RWMutex

	mu      sync.Mutex
	done    event.Ranges  // committed, without fingerprints
	past    history       // the same as the database keeps it
	last    event.Range   // of done: what was committed last
	busy    []event.Range // being written
	idle    chan struct{} // closed when a range stops being busy
	lost    bool          // a write may have been committed or not
	ended   error         // why the writer is of no more use
	spare   []*Rows
	commits int
	folding bool
}

// NewWriter makes the writer of a partition that was just taken over, when the
// entries were committed, and returns what is.
func NewWriter(book Book, entries []Entry, log *slog.Logger) (*Writer, event.Ranges) {
	w := &Writer{book: book, log: log, idle: make(chan struct{})}
	w.remember(entries)
	var done event.Ranges
	for _, e := range entries {
		done.Add(e.Range)
	}
	return w, done
}

// remember replaces what the writer knows to be committed.
func (w *Writer) remember(entries []Entry) {
	w.past, w.done, w.last = nil, nil, event.Range{}
	now := time.Now()
	for _, e := range entries {
		r := event.Range{First: e.Range.First, Count: e.Range.Count}
		w.past.add(e.Range, now.Add(-e.Age))
		w.done.Add(r)
		if r.End() > w.last.End() {
			w.last = r
		}
	}
}

// Close implements sink.Writer.
func (w *Writer) Close() error {
	w.end(errClosed)
	return nil
}

func (w *Writer) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = why
	}
}

// Write implements sink.Writer.
func (w *Writer) Write(ctx context.Context, out *event.Output) error {
	if err := w.claim(ctx, out.Range); err != nil {
		return err
	}
	defer w.release(out.Range)
	err := w.settle(ctx)
	if err == nil {
		err = w.land(ctx, out)
	}
	if err != nil && ctx.Err() == nil && w.isLost() {
		err = w.verdict(ctx, out, err)
	}
	if errors.Is(err, sink.ErrFenced) {
		w.end(sink.ErrFenced)
		return sink.ErrFenced
	}
	if _, refused := errors.AsType[*sink.RowErrors](err); refused {
		return err
	}
	if cancelled := ctx.Err(); cancelled != nil && err != nil {
		return cancelled
	}
	return err
}

// claim waits until no other write is at work on positions of r.
func (w *Writer) claim(ctx context.Context, r event.Range) error {
	for {
		w.mu.Lock()
		err, idle := w.ended, w.idle
		overlaps := func(b event.Range) bool { return b.First < r.End() && r.First < b.End() }
		free := !slices.ContainsFunc(w.busy, overlaps)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && free {
			w.busy = append(w.busy, event.Range{First: r.First, Count: r.Count})
		}
		w.mu.Unlock()
		if err != nil || free {
			return err
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}

func (w *Writer) release(r event.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.busy, func(b event.Range) bool { return b.First == r.First && b.Count == r.Count })
	w.busy = slices.Delete(w.busy, i, i+1)
	close(w.idle)
	w.idle = make(chan struct{})
}

// settle finds out what became of writes whose end nobody saw. It comes after
// claim: whoever had the same positions before has noted by then what it lost.
func (w *Writer) settle(ctx context.Context) error {
	if !w.isLost() {
		return nil
	}
	w.lanes.Lock()
	defer w.lanes.Unlock()
	if !w.isLost() {
		return nil
	}
	entries, err := w.book.Renew(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.done
	w.remember(entries)
	if w.ended = forgotten(known, w.done); w.ended != nil {
		return w.ended
	}
	w.lost = false
	return nil
}

// verdict finds out at once what became of out, where the database answers.
func (w *Writer) verdict(ctx context.Context, out *event.Output, failure error) error {
	err := w.settle(ctx)
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.done.Covers(out.Range.First, out.Range.End()) {
		return nil
	}
	return failure
}

// forgotten finds what was committed and is not any more: the database was
// restored to an older state. Whoever opens the partition next compares what is
// left with the source.
func forgotten(known, kept event.Ranges) error {
	var gaps event.Ranges
	for _, r := range known {
		for _, gap := range kept.Missing(r) {
			gaps.Add(gap)
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("the database has lost what it had committed: events %v", gaps),
		Hint: "it was restored to an older state, or perigee_ranges was changed; start the pipeline again: " +
			"what the source still has is delivered again, and what it has not it names",
	}
}

func (w *Writer) isLost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// doubt notes that nobody knows what became of a transaction, if that is so.
func (w *Writer) doubt(err error) {
	_, refused := errors.AsType[*sink.RowErrors](err)
	if refused || errors.Is(err, sink.ErrFenced) || !w.book.Doubtful(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
}

// land lands what is missing of out.
func (w *Writer) land(ctx context.Context, out *event.Output) error {
	w.lanes.RLock()
	defer w.lanes.RUnlock()
	missing, rows := w.begin(out)
	defer w.spareRows(rows)
	if len(missing) == 0 {
		return nil
	}
	if err := w.book.Land(ctx, rows, missing); err != nil {
		w.doubt(err)
		return err
	}
	if w.committed(missing) {
		w.fold(ctx)
	}
	return nil
}

// begin returns what the sink has not of out, and the rows of that.
func (w *Writer) begin(out *event.Output) (event.Ranges, *Rows) {
	w.mu.Lock()
	missing := event.Ranges(w.done.Missing(out.Range))
	rows := new(Rows)
	if n := len(w.spare); n > 0 {
		rows, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	w.mu.Unlock()
	rows.choose(out, missing)
	return missing, rows
}

// spareRows keeps the memory for the next write.
func (w *Writer) spareRows(rows *Rows) {
	rows.Output, rows.Columns = nil, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = append(w.spare, rows)
}

// foldEvery is how many commits lie between two folds.
const foldEvery = 256

// committed notes what is now durable, and tells whether it is time to fold.
func (w *Writer) committed(ranges event.Ranges) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranges {
		w.past.add(r, time.Now())
		w.last = event.Range{First: r.First, Count: r.Count}
		w.done.Add(w.last)
	}
	w.commits++
	return w.commits%foldEvery == 0
}

// fold makes fewer entries of those whose time has come, unless another lane is
// at it. What fails is met again by the next fold.
func (w *Writer) fold(ctx context.Context) {
	w.mu.Lock()
	busy := w.folding
	w.folding = true
	due := w.past.folds(time.Now())
	w.mu.Unlock()
	if busy {
		return
	}
	for _, r := range due {
		if err := w.foldOne(ctx, r); err != nil {
			w.log.Debug("folding the ranges that are committed", "range", r.String(), "error", err)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.folding = false
}

func (w *Writer) foldOne(ctx context.Context, r event.Range) error {
	if err := w.book.Fold(ctx, r); err != nil {
		w.doubt(err)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past.fold(r, time.Now())
	return nil
}
