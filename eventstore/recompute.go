//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/document"
)

// A FunctionError reports that the function of a computed column cannot continue with any
// row. It stops a recompute.
type FunctionError struct{ Err error }

func (e *FunctionError) Error() string { return e.Err.Error() }
func (e *FunctionError) Unwrap() error { return e.Err }

// Recompute starts to compute a column of the table's current rows; rows appended later are
// computed on append. It runs in the background and resumes after a crash. If the column's
// function changes, it restarts for all files. Of each file, a query sees either all old or
// all new values. If the function fails for a row, the value becomes null. A later Recompute
// of the column replaces this one.
func (s *Store) Recompute(ctx context.Context, table, column string) (catalog.Recompute, error) {
	t := s.tableNamed(table)
	if t == nil {
		return catalog.Recompute{}, unknownTable(table)
	}
	c := t.computedColumn(column)
	if c == nil {
		var names []string
		for _, known := range t.computedColumns() {
			names = append(names, known.Name)
		}
		hint := "declare it below computed of the table in the configuration of a running engine"
		if len(names) > 0 {
			hint = "computed columns: " + strings.Join(names, ", ")
		}
		return catalog.Recompute{}, configError(hint, "nothing computes a column %s of table %s", column, t.Name())
	}
	function := c.Version()
	t.computing.wait() // then no later frame has values of an earlier function
	r := manifest.Recompute{Function: function, RequestedAt: time.Now().UTC()}
	var begun catalog.Recompute
	err := s.change(func(next *manifest.Manifest) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		entry := next.TableByID(t.id)
		if entry == nil {
			return unknownTable(table)
		}
		i := slices.IndexFunc(entry.Current().Columns, func(known manifest.Column) bool { return strings.EqualFold(known.Name, c.Name) })
		if i < 0 {
			return configError("", "table %s has no column %s", t.Name(), c.Name)
		}
		next.LastRecompute++
		r.Number, r.Column, r.Before = next.LastRecompute, entry.Current().Columns[i].ID, s.log.End()
		entry.Recomputes = append(keep(entry.Recomputes, func(old *manifest.Recompute) bool { return old.Column != r.Column }), &r)
		begun = s.recomputeOf(t, entry, &r)
		return nil
	}, nil)
	if err != nil {
		return catalog.Recompute{}, err
	}
	// Rows in the log are computed once they are in files.
	err = s.log.Rotate(context.WithoutCancel(ctx))
	wake(s.compactor)
	return begun, err
}

// canceledText is the Error of a canceled recompute.
const canceledText = "canceled"

// CancelRecompute cancels the running recompute of a column. Finished files keep their new
// values, the others their old ones. A later Recompute computes all files again.
func (s *Store) CancelRecompute(table, column string) (catalog.Recompute, error) {
	t := s.tableNamed(table)
	if t == nil {
		return catalog.Recompute{}, unknownTable(table)
	}
	var canceled catalog.Recompute
	err := s.change(func(next *manifest.Manifest) error {
		entry := next.TableByID(t.id)
		if entry == nil {
			return unknownTable(table)
		}
		for _, r := range entry.Recomputes {
			if r.Ended.IsZero() && strings.EqualFold(entry.Current().ByID(r.Column).Name, column) {
				changeRecompute(entry, r.Number, func(r *manifest.Recompute) {
					r.Ended, r.Error, r.Stopped = time.Now().UTC(), canceledText, true
					canceled = s.recomputeOf(t, entry, r)
				})
				return nil
			}
		}
		return configError("perigee table show "+t.Name()+" lists the running recomputes", "no recompute of column %s of table %s is running", column, t.Name())
	}, nil)
	return canceled, err
}

// isRecomputing reports whether the given recompute of a table is running.
func (s *Store) isRecomputing(table uint32, number uint64) bool {
	entry := s.current().TableByID(table)
	return entry != nil && slices.ContainsFunc(entry.Recomputes, func(r *manifest.Recompute) bool { return r.Number == number && r.Ended.IsZero() })
}

// Recomputes returns the last recompute of each column of a table, oldest first.
func (s *Store) Recomputes(table string) (all []catalog.Recompute, err error) {
	entry := s.current().Table(table)
	if entry == nil {
		return nil, unknownTable(table)
	}
	if t := s.tableByID(entry.ID); t != nil {
		all = s.recomputesOf(t, entry)
	}
	return all, nil
}

func (s *Store) recomputesOf(t *Table, entry *manifest.Table) (all []catalog.Recompute) {
	for _, r := range entry.Recomputes {
		all = append(all, s.recomputeOf(t, entry, r))
	}
	return all
}

func (s *Store) recomputeOf(t *Table, entry *manifest.Table, r *manifest.Recompute) catalog.Recompute {
	state := catalog.Recompute{Number: r.Number, Table: t.Name(), Column: entry.Current().ByID(r.Column).Name, RequestedAt: r.RequestedAt, Ended: r.Ended, Rows: r.Rows, Failed: r.Failed, Error: r.Error, Stopped: r.Stopped}
	if r.Ended.IsZero() {
		state.Files, state.InLog = len(entry.Files), !s.isSealed(r.Before)
		for _, f := range entry.Files {
			if f.Computed >= r.Number {
				state.Done++
			}
		}
		state.Idle = t.computedColumn(state.Column) == nil
	}
	return state
}

// isSealed reports whether everything before a log position is in files.
func (s *Store) isSealed(p wal.Position) bool {
	return p.Compare(wal.Position{File: s.current().LogStart, Offset: wal.FirstFrame}) <= 0
}

// computedColumn returns the computed column of that name, or nil.
func (t *Table) computedColumn(name string) *ComputedColumn {
	columns := t.computedColumns()
	i := slices.IndexFunc(columns, func(c ComputedColumn) bool { return strings.EqualFold(c.Name, name) })
	if i < 0 {
		return nil
	}
	return &columns[i]
}

// endRecomputes marks the finished recomputes of a table: neither the log nor a file has rows
// left for them.
func endRecomputes(m *manifest.Manifest, t *manifest.Table) {
	first := wal.Position{File: m.LogStart, Offset: wal.FirstFrame}
	for i, r := range t.Recomputes {
		waits := func(f *manifest.File) bool { return f.Computed < r.Number }
		if r.Ended.IsZero() && r.Before.Compare(first) <= 0 && !slices.ContainsFunc(t.Files, waits) {
			ended := *r
			ended.Ended = time.Now().UTC()
			t.Recomputes[i] = &ended
		}
	}
}

// recomputeFile rewrites one file of each table for a recompute. If more work remains, it wakes the
// compactor again, so that deletes and merges need not wait for the last file.
func (s *Store) recomputeFile(ctx context.Context) error {
	m := s.current()
	var failed error
	for _, entry := range m.Tables {
		t := s.tableByID(entry.ID)
		next := s.nextFile(entry, func(f *manifest.File) bool { return t.needsRecompute(entry, f) })
		if next == nil {
			ended := *entry
			ended.Recomputes = slices.Clone(entry.Recomputes)
			if endRecomputes(m, &ended); !slices.Equal(ended.Recomputes, entry.Recomputes) { // the table has no files
				if err := s.replaceFiles(entry.ID, nil, nil); err != nil {
					return err
				}
			}
			continue
		}
		if err := s.recomputeIn(ctx, m, t, next); err != nil {
			failed = errors.Join(failed, fmt.Errorf("recompute a column of table %s: %w", entry.Name, err))
			continue
		}
		wake(s.compactor)
	}
	return failed
}

// needsRecompute reports whether a file waits for a recompute by a function of the running engine.
func (t *Table) needsRecompute(entry *manifest.Table, f *manifest.File) bool {
	r := entry.NextRecompute(f)
	return r != nil && t.computedColumn(entry.Current().ByID(r.Column).Name) != nil
}

// recomputeIn rewrites a file for the oldest recompute that it needs.
func (s *Store) recomputeIn(ctx context.Context, m *manifest.Manifest, t *Table, f *manifest.File) error {
	entry := m.TableByID(t.id)
	r := entry.NextRecompute(f)
	column := entry.Current().ByID(r.Column)
	c := t.computedColumn(column.Name)
	if c == nil {
		return nil
	}
	if function := c.Version(); function != r.Function {
		s.options.Log.Info("event store: the function of a column has changed: its recompute begins again", "table", t.Name(), "column", c.Name, "function", function)
		_, err := s.Recompute(ctx, t.Name(), c.Name)
		return err
	}
	if entry.HasLost(f) {
		computed := *f
		computed.Computed = r.Number
		return s.exchangeEntries(t.id, []*manifest.File{&computed})
	}
	w := &recomputeWork{table: t, column: column, recompute: r.Number}
	s.rewriting.RLock()
	defer s.rewriting.RUnlock()
	m = s.current() // includes the deletes that run now
	entry = m.TableByID(t.id)
	number := s.nextSegment()
	written, err := s.worker.Recompute(ctx, protocol.Recompute{
		Version: m.Version, Table: t.id, File: f.Name, Number: number, Column: r.Column, Hidden: t.hiddenFrom(entry, column.Name), Call: w.call,
	})
	switch {
	case w.isOver:
		return nil
	case w.ended != nil:
		return s.endRecompute(t.id, r.Number, w.ended)
	}
	if err != nil {
		return err
	}
	var fresh []*manifest.File
	rows := int64(0)
	for _, one := range written {
		file := mergedFile(m, entry, one, []*manifest.File{f}, number, lastDelete(entry))
		file.Computed, file.Changed = r.Number, len(file.Replaces) > 0
		rows += file.Rows
		fresh = append(fresh, file)
	}
	return s.exchangeFiles(t.id, map[string]bool{f.Name: true}, fresh, func(next *manifest.Table) {
		changeRecompute(next, r.Number, func(r *manifest.Recompute) {
			r.Rows += rows
			r.Failed += w.failed
			r.Error = cmp.Or(r.Error, w.first)
		})
	})
}

// endRecompute stops a recompute early.
func (s *Store) endRecompute(table uint32, number uint64, cause error) error {
	s.options.Log.Error("event store: a recompute ended before all files were done", "error", cause)
	return s.change(func(next *manifest.Manifest) error {
		changeRecompute(next.TableByID(table), number, func(r *manifest.Recompute) {
			r.Ended, r.Error, r.Stopped = time.Now().UTC(), cause.Error(), true
		})
		return nil
	}, nil)
}

// changeRecompute applies change to a recompute of a table, unless another has replaced it.
func changeRecompute(t *manifest.Table, number uint64, change func(*manifest.Recompute)) {
	for i, r := range t.Recomputes {
		if r.Number == number {
			changed := *r
			change(&changed)
			t.Recomputes[i] = &changed
		}
	}
}

// hiddenFrom returns the columns that the function of a computed column does not see: its own
// and those computed after it.
func (t *Table) hiddenFrom(entry *manifest.Table, column string) (ids []int32) {
	hide := false
	for _, c := range t.computedColumns() {
		hide = hide || strings.EqualFold(c.Name, column)
		for _, known := range entry.Current().Columns {
			if hide && strings.EqualFold(known.Name, c.Name) {
				ids = append(ids, known.ID)
			}
		}
	}
	return ids
}

// A recomputeWork computes the values of one file.
type recomputeWork struct {
	table  *Table
	column *manifest.Column

	recompute uint64 // its number
	isOver    bool   // the recompute was canceled or replaced

	attempt int
	rows    int64
	failed  int64
	first   string        // why the first row failed
	spent   time.Duration // time spent in the function
	ended   error         // why the recompute stopped
}

// stuckTime is the time that a function may spend on one file if more than half of its rows
// fail. Without it, a function that hits its time limit on every row would block maintenance
// for days.
const stuckTime = 20 * time.Second

// callRows is the number of rows in one call of the function.
const callRows = 128

// call returns the value of each document as text, or nil without one. A new attempt restarts
// at the first row of the file.
func (w *recomputeWork) call(ctx context.Context, attempt int, documents [][]byte) (texts [][]byte, err error) {
	if attempt != w.attempt {
		w.attempt, w.rows, w.failed, w.first = attempt, 0, 0, ""
	}
	for some := range slices.Chunk(documents, callRows) {
		if w.isOver = !w.table.store.isRecomputing(w.table.id, w.recompute); w.isOver {
			return nil, errors.New("the recompute is over")
		}
		begun := time.Now()
		values, err := w.compute(ctx, some)
		if err != nil {
			return nil, err
		}
		texts = append(texts, values...)
		w.rows, w.spent = w.rows+int64(len(some)), w.spent+time.Since(begun)
		if err := w.checkProgress(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// checkProgress ends the recompute if the function has spent stuckTime mostly on rows for
// which it failed.
func (w *recomputeWork) checkProgress() error {
	if w.spent > stuckTime && w.failed*2 > w.rows {
		w.ended = fmt.Errorf("the function failed for %d of %d rows in %v; the first: %s", w.failed, w.rows, w.spent.Round(time.Millisecond), w.first)
	}
	return w.ended
}

// compute returns the value of each document.
func (w *recomputeWork) compute(ctx context.Context, documents [][]byte) ([][]byte, error) {
	defer w.table.computing.begin()()
	c := w.table.computedColumn(w.column.Name)
	if c == nil {
		return nil, errors.New("nothing computes the column any more")
	}
	rows := event.Batch{Range: event.Range{Count: uint64(len(documents))}}
	for _, d := range documents {
		rows.Append(d)
	}
	res := event.Result{Outputs: make([]event.Output, 1)}
	if err := c.Compute(ctx, &rows, &res); err != nil {
		if _, ok := errors.AsType[*FunctionError](err); ok {
			w.ended = err
		}
		return nil, err
	}
	texts := make([][]byte, len(documents))
	out := &res.Outputs[0]
	extractor := document.NewExtractor([]event.Column{{Name: c.Name, Path: w.column.Path, Type: w.column.Type}})
	var columns event.Columns
	report, err := extractor.Extract(out.Data, out.Ends, &columns)
	if err != nil {
		return nil, err
	}
	for row := range out.Len() {
		if v := &columns.Vectors[0]; v.Null[row] == 0 {
			texts[out.From[row]] = textOf(v, w.column.Type, row)
		}
	}
	for _, d := range res.Dead {
		w.fail(d.Error)
	}
	for _, bad := range report.Rejected { // its value is null
		texts[out.From[bad.Row]] = nil
		w.fail(bad.Reason)
	}
	return texts, nil
}

func (w *recomputeWork) fail(reason string) {
	w.failed++
	w.first = cmp.Or(w.first, reason)
}
