// Package positions is the part of an exactly-once sink that does not depend on
// the kind of database: the commits of a partition's writer under its ledger, and the
// entries of the committed ranges, which it merges.
//
// When a connection is lost during a write, the writer cannot know whether the
// write was committed. The ledger then renews: the writer takes the partition over from
// itself, which fences whatever is still in flight, and reads what is committed.
//
// A Writer is safe for concurrent use.
package positions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/event/ledger"
	"github.com/perigeedb/perigee/sink"
)

// A Store keeps the committed ranges of one partition for the writer that owns it.
// Several goroutines call Commit and IsCommitted at the same time; Renew is called
// while nothing else is.
type Store interface {
	// Renew takes the partition over from the writer itself and returns the
	// committed ranges. It returns sink.ErrFenced if another writer owns the
	// partition.
	Renew(ctx context.Context) ([]Entry, error)

	// Commit commits rows, and ranges with their fingerprints, in one transaction.
	// After sink.ErrFenced, *sink.RowErrors and every error whose outcome is known,
	// nothing was committed.
	Commit(ctx context.Context, rows *Rows, ranges []event.Range) error

	// IsCommitted reports whether r, which the writer has committed, still is. It
	// returns sink.ErrFenced if another writer owns the partition.
	IsCommitted(ctx context.Context, r event.Range) (bool, error)

	// Compact replaces the entries that lie in r by r, unless the writer is fenced.
	Compact(ctx context.Context, r event.Range) error

	// OutcomeUnknown reports whether a transaction that ended with err may have been
	// committed.
	OutcomeUnknown(err error) bool
}

// Rows are the rows of an output that are to be written.
type Rows struct {
	Output  *event.Output
	Columns *event.Columns
	Index   []int // of rows in Output and Columns, ascending
}

// selectRows selects the rows that come from the missing positions of a reservation.
func (r *Rows) selectRows(out *event.Output, held ledger.Reservation) {
	r.Output, r.Columns, r.Index = out, out.Columns, r.Index[:0]
	for first, end := range held.Rows(out) {
		for row := first; row < end; row++ {
			r.Index = append(r.Index, row)
		}
	}
}

var errClosed = errors.New("the writer is closed")

// A Writer owns one partition. It implements sink.Writer.
type Writer struct {
	store Store
	log   *slog.Logger
	owner *ledger.Owner

	renewing   sync.RWMutex // read-locked while Verify asks the store, locked while it renews
	compacting sync.Mutex   // held while entries are merged

	mu          sync.Mutex
	history     history     // committed, as the store keeps it
	last        event.Range // committed last
	freeRows    []*Rows
	uncompacted int // commits since the last compaction
}

// NewWriter returns the writer of a partition that was just taken over, with the
// entries that were committed, and their ranges.
func NewWriter(store Store, entries []Entry, log *slog.Logger) (*Writer, event.Ranges) {
	w := &Writer{store: store, log: log}
	w.owner = ledger.New(w.load(entries), w.renew).TakeOver()
	var committed event.Ranges
	for _, e := range entries {
		committed.Add(e.Range)
	}
	return w, committed
}

// load replaces what the writer knows of the store's entries. It returns their ranges,
// without fingerprints.
func (w *Writer) load(entries []Entry) (committed event.Ranges) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history, w.last = nil, event.Range{}
	now := time.Now()
	for _, e := range entries {
		r := event.Range{First: e.Range.First, Count: e.Range.Count}
		w.history.add(e.Range, now.Add(-e.Age))
		committed.Add(r)
		if r.End() > w.last.End() {
			w.last = r
		}
	}
	return committed
}

// renew takes the partition over from the writer itself. The ledger calls it.
func (w *Writer) renew(ctx context.Context) (event.Ranges, error) {
	w.renewing.Lock()
	defer w.renewing.Unlock()
	entries, err := w.store.Renew(ctx)
	if err != nil {
		return nil, err
	}
	return w.load(entries), nil
}

// Close implements sink.Writer.
func (w *Writer) Close() error {
	w.owner.Fail(errClosed)
	return nil
}

// Write implements sink.Writer.
func (w *Writer) Write(ctx context.Context, out *event.Output) error { return w.write(ctx, out, nil) }

func (w *Writer) write(ctx context.Context, out *event.Output, note *Note) error {
	err := w.commitMissing(ctx, out, note)
	if errors.Is(err, sink.ErrFenced) {
		w.owner.Fail(sink.ErrFenced)
		return sink.ErrFenced
	}
	if _, rejected := errors.AsType[*sink.RowErrors](err); rejected {
		return err
	}
	if cancelled := ctx.Err(); cancelled != nil && err != nil {
		return cancelled
	}
	return err
}

// commitMissing commits the part of out that is not committed, which is all of it if there is
// a note.
func (w *Writer) commitMissing(ctx context.Context, out *event.Output, note *Note) error {
	held, err := w.owner.Reserve(ctx, out.Range)
	if err != nil {
		return explain(err)
	}
	how, err := w.commit(ctx, out, note, held)
	switch how {
	case ledger.Unknown:
		return w.findOutcome(ctx, out.Range, err)
	case ledger.Committed:
		w.compact(ctx)
	}
	return err
}

// commit commits the missing rows and ranges of out, and the note if there is one, and finishes
// the reservation.
func (w *Writer) commit(ctx context.Context, out *event.Output, note *Note, held ledger.Reservation) (how ledger.Outcome, err error) {
	defer func() { held.Finish(how) }()
	if len(held.Missing) == 0 && (note == nil || out.Range.Count > 0) {
		return ledger.Committed, nil
	}
	if note != nil && !held.Missing.Covers(out.Range.First, out.Range.End()) {
		return ledger.Aborted, errPartlyCommitted(out.Range, held.Missing, note)
	}
	rows := w.takeRows()
	defer w.recycle(rows)
	rows.selectRows(out, held)
	if note == nil {
		err = w.store.Commit(ctx, rows, held.Missing)
	} else {
		err = w.commitNote(ctx, rows, held.Missing, note)
	}
	if err == nil {
		w.recordCommit(held.Missing)
	}
	return w.outcome(err), err
}

// outcome returns how a transaction ended.
func (w *Writer) outcome(err error) ledger.Outcome {
	_, rejected := errors.AsType[*sink.RowErrors](err)
	_, refused := errors.AsType[*NumberError](err)
	switch {
	case err == nil:
		return ledger.Committed
	case rejected || refused || errors.Is(err, sink.ErrFenced) || !w.store.OutcomeUnknown(err):
		return ledger.Aborted
	}
	return ledger.Unknown
}

// findOutcome returns nil if r was committed although its write failed, as far as the
// database answers at once: a new reservation renews what the writer knows.
func (w *Writer) findOutcome(ctx context.Context, r event.Range, failure error) error {
	held, err := w.owner.Reserve(ctx, r)
	if err = explain(err); event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		return err
	}
	if err != nil {
		return failure
	}
	held.Finish(ledger.Aborted)
	if len(held.Missing) > 0 || r.Count == 0 { // of an empty range the next attempt finds it out
		return failure
	}
	return nil
}

// explain turns an error of the ledger into one of the sink.
func explain(err error) error {
	if lost, ok := errors.AsType[*ledger.LostError](err); ok {
		return errSetBack(lost.Lost)
	}
	return err
}

// errSetBack returns the permanent error of a database that was restored to an older
// state and has lost committed ranges. The next Open compares the ranges that remain with
// the source.
func errSetBack(lost event.Ranges) error {
	return &event.PermanentError{
		Err: fmt.Errorf("the database has lost committed events: %v", lost),
		Hint: "the database was restored to an older state, or perigee_ranges was changed; restart the pipeline: " +
			"it delivers again the events that the source still has, and names the missing ones",
	}
}

// Verify implements sink.Writer. A database that is set back loses its last commits first,
// so that a check of the last range is enough.
func (w *Writer) Verify(ctx context.Context) error {
	w.renewing.RLock()
	defer w.renewing.RUnlock()
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if err := w.owner.Err(); err != nil {
		return explain(err)
	}
	there, err := w.store.IsCommitted(ctx, last)
	if err == nil && !there && last.Count > 0 {
		err = errSetBack(event.Ranges{last})
	}
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		w.owner.Fail(err)
	}
	return err
}

// takeRows returns rows whose memory can be overwritten.
func (w *Writer) takeRows() *Rows {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.freeRows)
	if n == 0 {
		return new(Rows)
	}
	rows := w.freeRows[n-1]
	w.freeRows = w.freeRows[:n-1]
	return rows
}

// recycle keeps the memory of rows for the next write.
func (w *Writer) recycle(rows *Rows) {
	rows.Output, rows.Columns = nil, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freeRows = append(w.freeRows, rows)
}

// compactEvery is how many commits lie between two compactions.
const compactEvery = 256

// recordCommit records ranges that the store has committed.
func (w *Writer) recordCommit(ranges event.Ranges) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranges {
		w.history.add(r, time.Now())
		w.last = event.Range{First: r.First, Count: r.Count}
	}
	w.uncompacted++
}

// compact merges entries of the store if it is time to and no other write does. The next
// compaction retries what fails.
func (w *Writer) compact(ctx context.Context) {
	if !w.isCompactionDue() || !w.compacting.TryLock() {
		return
	}
	defer w.compacting.Unlock()
	held, err := w.owner.Reserve(ctx, event.Range{}) // nothing renews the claim meanwhile
	if err != nil {
		return
	}
	how := ledger.Unknown
	defer func() { held.Finish(how) }()
	err = w.compactHistory(ctx)
	how = w.outcome(err)
}

// isCompactionDue reports whether enough was committed since it last returned true.
func (w *Writer) isCompactionDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.uncompacted >= compactEvery
	if due {
		w.uncompacted = 0
	}
	return due
}

// compactHistory merges what can be merged, up to the first error.
func (w *Writer) compactHistory(ctx context.Context) error {
	w.mu.Lock()
	due := w.history.compactions(time.Now())
	w.mu.Unlock()
	for _, r := range due {
		if err := w.store.Compact(ctx, r); err != nil {
			w.log.Debug("compacting the committed ranges", "range", r.String(), "error", err)
			return err
		}
		w.mu.Lock()
		w.history.merge(r, time.Now())
		w.mu.Unlock()
	}
	return nil
}
