package computed

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/script"
)

// limitsMax is how many runs of a column's code may hit a limit in one batch.
const limitsMax = 3

// A computation computes the columns of one batch. Its memory is reused.
type computation struct {
	script   *Script
	result   *script.ResultBuilder
	inner    event.Result          // of the script before the columns; stays as it is
	values   event.Result          // of the code of a column
	checkers []*document.Extractor // by column
	checked  event.Columns

	in         *event.Batch
	rows       *event.Output   // with the columns so far
	added      [2]event.Output // rows with columns: rows, and those with one column more or less
	numbers    []uint32        // by row: its number among the rows of its event
	sourceRows []uint32        // by row: its index among the script's
	cells      cells
	rejected   []bool // by row
	dead       []event.DeadLetter
}

// run makes the result from what the script returned.
func (w *computation) run(ctx context.Context, in *event.Batch, res *event.Result) error {
	w.start(in)
	if err := w.compute(ctx); err != nil {
		return err
	}
	return w.finish(res)
}

// sent returns the script's rows.
func (w *computation) sent() *event.Output { return &w.inner.Outputs[0] }

// start takes over what the script returned.
func (w *computation) start(in *event.Batch) {
	w.in, w.rows = in, w.sent()
	w.dead = append(w.dead[:0], w.inner.Dead...)
	w.numbers, w.sourceRows = w.numbers[:0], w.sourceRows[:0]
	for i, from := range w.rows.From {
		w.sourceRows = append(w.sourceRows, uint32(i))
		number := uint32(0)
		if i > 0 && w.rows.From[i-1] == from {
			number = w.numbers[i-1] + 1
		}
		w.numbers = append(w.numbers, number)
	}
}

// compute computes the columns, one after the other.
func (w *computation) compute(ctx context.Context) error {
	for i := range w.script.columns {
		c := &w.script.columns[i]
		w.cells.reset(w.rows.Len())
		w.rejected = append(w.rejected[:0], make([]bool, w.rows.Len())...)
		if err := w.fillCells(ctx, c); err != nil {
			return fmt.Errorf("compute column %s: %w", c.Name, err)
		}
		if err := w.rejectMistyped(c, w.checkers[i]); err != nil {
			return fmt.Errorf("check column %s: %w", c.Name, err)
		}
		w.addColumn(c)
	}
	return nil
}

// fillCells computes the values of a column.
func (w *computation) fillCells(ctx context.Context, c *Column) error {
	switch c.Builtin {
	case Identifier:
		w.fillIdentifiers(c)
	case Timestamp:
		w.fillTimestamps(c)
	default:
		return w.callCode(ctx, c)
	}
	return nil
}

// callCode runs the code of a column on all rows.
func (w *computation) callCode(ctx context.Context, c *Column) error {
	if w.rows.Len() == 0 {
		return nil
	}
	all := event.Batch{
		Partition: w.in.Partition, Range: event.Range{Count: uint64(w.rows.Len())}, Data: w.rows.Data, Ends: w.rows.Ends,
	}
	err := script.RunAll(ctx, c.Code, &all, &w.values, limitsMax, func(part *event.Batch, _ *script.LimitError) error {
		w.collectValues(c, int(part.Range.First))
		return nil
	})
	if err != nil {
		return err
	}
	return w.checkComplete(c)
}

// collectValues adds the values of a run, of the rows from first on.
func (w *computation) collectValues(c *Column, first int) {
	for i := range w.values.Dead {
		d := &w.values.Dead[i]
		w.rejectRow(int(d.Position), event.DeadLetter{
			Stage: d.Stage, Error: nameColumn(c, d.Error), Traceback: d.Traceback, Script: d.Script,
		})
	}
	out := &w.values.Outputs[0]
	for i := range out.Len() {
		w.cells.set(first+int(out.From[i]), out.Doc(i))
	}
}

// nameColumn adds the column's name to an error, unless the code is named after it.
func nameColumn(c *Column, fault string) string {
	if name := "column " + c.Name; !strings.HasPrefix(fault, name) {
		return name + ": " + fault
	}
	return fault
}

// checkComplete checks that each row has a value or was rejected.
func (w *computation) checkComplete(c *Column) error {
	dead := 0
	for _, rejected := range w.rejected {
		if rejected {
			dead++
		}
	}
	if values := len(w.cells.rows); values+dead != w.rows.Len() {
		return fmt.Errorf("%s returned %d values and %d errors for %d rows: this is a bug in its engine", c.Code, values, dead, w.rows.Len())
	}
	return nil
}

// rejectRow makes dead letters of a row, one for each of its sinks.
func (w *computation) rejectRow(row int, d event.DeadLetter) {
	if w.rejected[row] {
		return
	}
	w.rejected[row] = true
	from, source := w.rows.From[row], int(w.sourceRows[row])
	d.Position, d.Original = w.in.Range.First+uint64(from), bytes.Clone(w.in.Doc(int(from)))
	d.Document = script.KeepDocument(w.in, w.sent().Doc(source))
	for i := range w.script.options.Sinks {
		if w.isForSink(i, source) {
			d.Sink, d.Number = w.script.options.Sinks[i].Name, w.rowNumber(i, source)
			w.dead = append(w.dead, d)
		}
	}
}

// finish fills the result. It keeps the script's count of dropped events: an event whose
// rows were all rejected was not dropped.
func (w *computation) finish(res *event.Result) error {
	w.result.Start(w.in, res)
	w.result.AddRows(w.rows)
	res.Dead = append(res.Dead, w.dead...)
	err := w.result.Finish(w.inner.Ran)
	res.Dropped = w.inner.Dropped
	return err
}

// isForSink reports whether a row of the script is for sink i.
func (w *computation) isForSink(i, source int) bool {
	to := uint64(0)
	if sent := w.sent(); len(sent.To) > 0 {
		to = sent.To[source]
	}
	return w.script.options.Wants(i, to)
}

// rowNumber returns the number of a row of the script among those of its event in sink i.
func (w *computation) rowNumber(i, source int) (number uint32) {
	from := w.sent().From
	for at := source - 1; at >= 0 && from[at] == from[source]; at-- {
		if w.isForSink(i, at) {
			number++
		}
	}
	return number
}

// sourceInSink returns the number and the script's document of a row of output i.
func (w *computation) sourceInSink(i, row int) (number uint32, document []byte) {
	for _, source := range w.sourceRows {
		if !w.isForSink(i, int(source)) {
			continue
		}
		if row == 0 {
			return w.rowNumber(i, int(source)), w.sent().Doc(int(source))
		}
		row--
	}
	panic("computed: a sink has more rows than the script returned")
}
