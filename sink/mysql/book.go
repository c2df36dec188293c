package mysql

import (
	"context"
	"errors"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A writer owns one partition.
type writer struct {
	*positions.Writer
	*book
}

// Close implements sink.Writer.
func (w writer) Close() error {
	err := w.Writer.Close()
	w.book.close()
	return err
}

// A book is one partition in the ledger, for the writer that has taken it over.
// It implements positions.Store.
type book struct {
	sink      *Sink
	partition string
	token     string // names the writer in perigee_owners
	plan      plan
	id        uint64 // of the row in perigee_owners
	epoch     uint64

	mu       sync.Mutex
	sessions []*session // that nobody uses now
	taken    [slots]bool
	closed   bool
	spare    []*batch
	inserts  bool // the way of the plan is of no use here
	mistaken int  // batches in a row that were refused for nothing
}

func (b *book) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.forgetAll()
}

// Commit implements positions.Store.
func (b *book) Commit(ctx context.Context, rows *positions.Rows, ranges []event.Range) error {
	t := b.batch(rows)
	defer b.spareBatch(t)
	s, err := b.session(ctx)
	if err != nil {
		return b.sink.explain("connecting", err)
	}
	if err = b.transact(ctx, s, t, ranges); err == nil {
		b.keep(s)
		return nil
	}
	verdict := judge(err)
	if verdict == unknown {
		b.forget(s)
		return b.explain(err)
	}
	defer b.keep(s)
	rollBack(ctx, s.conn)
	if verdict == refused {
		err = b.refuse(ctx, s.conn, t, err)
	}
	return b.explain(err)
}

func (b *book) explain(err error) error {
	if _, rows := errors.AsType[*sink.RowErrors](err); rows {
		return err
	}
	return b.sink.explain("writing to table "+b.sink.config.Table, err)
}

// OutcomeUnknown implements positions.Store.
func (b *book) OutcomeUnknown(err error) bool { return judge(err) == unknown }

// batch returns memory for rows.
func (b *book) batch(rows *positions.Rows) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := new(batch)
	if n := len(b.spare); n > 0 {
		t, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	t.columns, t.rows = rows.Columns, rows.Index
	return t
}

// spareBatch keeps a batch's memory for the next write, unless it has become huge.
func (b *book) spareBatch(t *batch) {
	t.columns, t.rows = nil, nil
	if cap(t.buf) > 2*largeStatement {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = append(b.spare, t)
}

const (
	startStatement  = "START TRANSACTION"
	commitStatement = ";COMMIT"
)

// transact writes rows and ranges in one transaction. What LOAD DATA refuses is
// inserted, for a load also counts as refused when the server only warned. Arrays
// refuse what any INSERT does, so it is tried again only where there are no arrays.
func (b *book) transact(ctx context.Context, s *session, t *batch, ranges []event.Range) error {
	way := b.way(s, t)
	refusal := b.write(ctx, s, t, ranges, way)
	switch {
	case way == byRows:
		return refusal
	case refusal == nil:
		b.went(nil, nil)
		return nil
	case way == byArrays && !isNumber(refusal, notAllowed...), judge(refusal) != refused:
		return refusal
	}
	rollBack(ctx, s.conn)
	err := b.insert(ctx, s, t, ranges, byRows)
	b.went(refusal, err)
	return err
}

func (b *book) write(ctx context.Context, s *session, t *batch, ranges []event.Range, way way) error {
	if way == byLoad {
		return b.load(ctx, s, t, ranges)
	}
	return b.insert(ctx, s, t, ranges, way)
}
