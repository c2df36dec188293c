// Package positions is the part of an exactly-once sink that does not depend on
// the kind of database: what the writer of a partition knows about the committed
// positions, and what it does when it no longer knows.
//
// When a connection is lost during a write, the writer cannot know whether the
// write was committed. It then takes the partition over from itself: that fences
// whatever is still in flight, and reads what is committed.
//
// A Writer is safe for concurrent use.
package positions

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

// selectRows selects the rows that come from positions in ranges.
func (r *Rows) selectRows(out *event.Output, ranges event.Ranges) {
	r.Output, r.Columns, r.Index = out, out.Columns, r.Index[:0]
	all := ranges.Covers(out.Range.First, out.Range.End())
	for row := range out.Len() {
		if all || ranges.Has(out.Position(row)) {
			r.Index = append(r.Index, row)
		}
	}
}

var errClosed = errors.New("the writer is closed")

// A Writer owns one partition. It implements sink.Writer.
type Writer struct {
	store Store
	log   *slog.Logger

	// writing is held for reading by every write in flight, and for writing while
	// the writer takes the partition over from itself.
	writing sync.RWMutex

	mu         sync.Mutex
	committed  event.Ranges  // without fingerprints
	history    history       // committed, as the store keeps it
	last       event.Range   // committed last
	inFlight   []event.Range // being written
	released   chan struct{} // closed when a range is no longer in flight
	uncertain  bool          // the outcome of a write is unknown
	failure    error         // why the writer can no longer be used
	freeRows   []*Rows
	commits    int
	compacting bool
}

// NewWriter returns the writer of a partition that was just taken over, with the
// entries that were committed, and their ranges.
func NewWriter(store Store, entries []Entry, log *slog.Logger) (*Writer, event.Ranges) {
	w := &Writer{store: store, log: log, released: make(chan struct{})}
	w.load(entries)
	var committed event.Ranges
	for _, e := range entries {
		committed.Add(e.Range)
	}
	return w, committed
}

// load replaces what the writer knows to be committed.
func (w *Writer) load(entries []Entry) {
	w.history, w.committed, w.last = nil, nil, event.Range{}
	now := time.Now()
	for _, e := range entries {
		r := event.Range{First: e.Range.First, Count: e.Range.Count}
		w.history.add(e.Range, now.Add(-e.Age))
		w.committed.Add(r)
		if r.End() > w.last.End() {
			w.last = r
		}
	}
}

// Close implements sink.Writer.
func (w *Writer) Close() error {
	w.fail(errClosed)
	return nil
}

// fail makes all later writes return err.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = err
	}
}

// Write implements sink.Writer.
func (w *Writer) Write(ctx context.Context, out *event.Output) error {
	if err := w.reserve(ctx, out.Range); err != nil {
		return err
	}
	defer w.release(out.Range)
	err := w.resolve(ctx)
	if err == nil {
		err = w.commitMissing(ctx, out)
	}
	if err != nil && ctx.Err() == nil && w.isUncertain() {
		err = w.resolveFailure(ctx, out, err)
	}
	if errors.Is(err, sink.ErrFenced) {
		w.fail(sink.ErrFenced)
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

// reserve waits until no other write in flight has positions of r.
func (w *Writer) reserve(ctx context.Context, r event.Range) error {
	for {
		w.mu.Lock()
		err, released := w.failure, w.released
		overlaps := func(b event.Range) bool { return b.First < r.End() && r.First < b.End() }
		free := !slices.ContainsFunc(w.inFlight, overlaps)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && free {
			w.inFlight = append(w.inFlight, event.Range{First: r.First, Count: r.Count})
		}
		w.mu.Unlock()
		if err != nil || free {
			return err
		}
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
}

func (w *Writer) release(r event.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.inFlight, func(b event.Range) bool { return b.First == r.First && b.Count == r.Count })
	w.inFlight = slices.Delete(w.inFlight, i, i+1)
	close(w.released)
	w.released = make(chan struct{})
}

// resolve learns the outcome of writes that is unknown. It follows reserve, so that
// an earlier write of the same positions has recorded that its outcome is unknown.
func (w *Writer) resolve(ctx context.Context) error {
	if !w.isUncertain() {
		return nil
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	if !w.isUncertain() {
		return nil
	}
	entries, err := w.store.Renew(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.committed
	w.load(entries)
	if w.failure = checkStillCommitted(known, w.committed); w.failure != nil {
		return w.failure
	}
	w.uncertain = false
	return nil
}

// resolveFailure returns nil if out was committed although its write failed, as far
// as the database answers at once.
func (w *Writer) resolveFailure(ctx context.Context, out *event.Output, failure error) error {
	err := w.resolve(ctx)
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.committed.Covers(out.Range.First, out.Range.End()) {
		return nil
	}
	return failure
}

// checkStillCommitted returns a permanent error if ranges that were known to be
// committed no longer are: the database was restored to an older state. The next
// Open compares the ranges that remain with the source.
func checkStillCommitted(known, committed event.Ranges) error {
	var gaps event.Ranges
	for _, r := range known {
		for _, gap := range committed.Missing(r) {
			gaps.Add(gap)
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	return &event.PermanentError{
		Err: fmt.Errorf("the database has lost committed events: %v", gaps),
		Hint: "the database was restored to an older state, or perigee_ranges was changed; restart the pipeline: " +
			"it delivers again what the source still has, and names what it does not",
	}
}

// Verify implements sink.Writer. A database that is set back loses first what was
// committed last, so that this stands for all ranges.
func (w *Writer) Verify(ctx context.Context) error {
	w.writing.RLock()
	defer w.writing.RUnlock()
	w.mu.Lock()
	last, err := w.last, w.failure
	w.mu.Unlock()
	if err != nil {
		return err
	}
	there, err := w.store.IsCommitted(ctx, last)
	if err == nil && !there && last.Count > 0 {
		err = checkStillCommitted(event.Ranges{last}, nil)
	}
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		w.fail(err)
	}
	return err
}

func (w *Writer) isUncertain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uncertain
}

// noteOutcome records that the outcome of a transaction is unknown, if it is.
func (w *Writer) noteOutcome(err error) {
	_, rejected := errors.AsType[*sink.RowErrors](err)
	if rejected || errors.Is(err, sink.ErrFenced) || !w.store.OutcomeUnknown(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncertain = true
}

// commitMissing commits the part of out that is not committed.
func (w *Writer) commitMissing(ctx context.Context, out *event.Output) error {
	w.writing.RLock()
	defer w.writing.RUnlock()
	missing, rows := w.selectMissing(out)
	defer w.recycle(rows)
	if len(missing) == 0 {
		return nil
	}
	if err := w.store.Commit(ctx, rows, missing); err != nil {
		w.noteOutcome(err)
		return err
	}
	if w.recordCommit(missing) {
		w.compact(ctx)
	}
	return nil
}

// selectMissing returns the ranges of out that are not committed, and their rows.
func (w *Writer) selectMissing(out *event.Output) (event.Ranges, *Rows) {
	w.mu.Lock()
	missing := event.Ranges(w.committed.Missing(out.Range))
	rows := new(Rows)
	if n := len(w.freeRows); n > 0 {
		rows, w.freeRows = w.freeRows[n-1], w.freeRows[:n-1]
	}
	w.mu.Unlock()
	rows.selectRows(out, missing)
	return missing, rows
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

// recordCommit records ranges as committed and reports whether it is time to
// compact.
func (w *Writer) recordCommit(ranges event.Ranges) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranges {
		w.history.add(r, time.Now())
		w.last = event.Range{First: r.First, Count: r.Count}
		w.committed.Add(w.last)
	}
	w.commits++
	return w.commits%compactEvery == 0
}

// compact merges entries of the store, unless another write is at it. The next
// compaction retries what fails.
func (w *Writer) compact(ctx context.Context) {
	w.mu.Lock()
	busy := w.compacting
	w.compacting = true
	due := w.history.compactions(time.Now())
	w.mu.Unlock()
	if busy {
		return
	}
	for _, r := range due {
		if err := w.compactRange(ctx, r); err != nil {
			w.log.Debug("compacting the committed ranges", "range", r.String(), "error", err)
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacting = false
}

func (w *Writer) compactRange(ctx context.Context, r event.Range) error {
	if err := w.store.Compact(ctx, r); err != nil {
		w.noteOutcome(err)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.merge(r, time.Now())
	return nil
}
