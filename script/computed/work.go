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

// A work is one batch on its way through the columns. Its memory is used again.
type work struct {
	script   *Script
	result   *script.ResultBuilder
	inner    event.Result          // of the script before the columns
	values   event.Result          // of the code of a column
	checkers []*document.Extractor // by column
	checked  event.Columns

	in      *event.Batch
	rows    event.Output // as far as the columns have come
	next    event.Output // rows with one more column
	numbers []uint32     // which output of its event a row was
	origins []uint32     // which output of the script a row was
	sent    event.Output // the events and sinks of the script's outputs, without documents
	cells   cells
	bad     []bool // by row: it is dead
	dead    []event.Dead
}

// start takes over what the script returned.
func (w *work) start(in *event.Batch) {
	w.in = in
	w.rows, w.inner.Outputs[0] = w.inner.Outputs[0], w.rows
	w.dead = append(w.dead[:0], w.inner.Dead...)
	w.numbers, w.origins = w.numbers[:0], w.origins[:0]
	w.sent.From, w.sent.To = append(w.sent.From[:0], w.rows.From...), append(w.sent.To[:0], w.rows.To...)
	for i, from := range w.rows.From {
		w.origins = append(w.origins, uint32(i))
		number := uint32(0)
		if i > 0 && w.rows.From[i-1] == from {
			number = w.numbers[i-1] + 1
		}
		w.numbers = append(w.numbers, number)
	}
}

// compute adds the columns, one after the other.
func (w *work) compute(ctx context.Context) error {
	for i := range w.script.columns {
		c := &w.script.columns[i]
		w.cells.reset(w.rows.Len())
		w.bad = append(w.bad[:0], make([]bool, w.rows.Len())...)
		if err := w.evaluate(ctx, c); err != nil {
			return fmt.Errorf("compute column %s: %w", c.Name, err)
		}
		if err := w.check(c, w.checkers[i]); err != nil {
			return fmt.Errorf("check column %s: %w", c.Name, err)
		}
		w.splice(c)
	}
	return nil
}

// evaluate fills the cells of a column.
func (w *work) evaluate(ctx context.Context, c *Column) error {
	switch c.Built {
	case Identifier:
		w.identify(c)
	case Timestamp:
		w.stamp(c)
	default:
		return w.call(ctx, c)
	}
	return nil
}

// call passes the rows through the code of a column, in one crossing unless a limit ends
// it.
func (w *work) call(ctx context.Context, c *Column) error {
	if w.rows.Len() == 0 {
		return nil
	}
	all := event.Batch{
		Partition: w.in.Partition, Range: event.Range{Count: uint64(w.rows.Len())}, Data: w.rows.Data, Ends: w.rows.Ends,
	}
	err := script.RunAll(ctx, c.Code, &all, &w.values, limitsMax, func(part *event.Batch, _ *script.LimitError) error {
		w.collect(c, int(part.Range.First))
		return nil
	})
	if err != nil {
		return err
	}
	return w.complete(c)
}

// collect takes the values of the rows from first on.
func (w *work) collect(c *Column, first int) {
	for i := range w.values.Dead {
		d := &w.values.Dead[i]
		w.refuse(int(d.Position), event.Dead{
			Stage: d.Stage, Error: about(c, d.Error), Traceback: d.Traceback, Script: d.Script,
		})
	}
	out := &w.values.Outputs[0]
	for i := range out.Len() {
		w.cells.set(first+int(out.From[i]), out.Doc(i))
	}
}

// about makes an error name the column. Code that has no file is called after it.
func about(c *Column, fault string) string {
	if name := "column " + c.Name; !strings.HasPrefix(fault, name) {
		return name + ": " + fault
	}
	return fault
}

// complete checks that each row has a value or is dead.
func (w *work) complete(c *Column) error {
	dead := 0
	for _, bad := range w.bad {
		if bad {
			dead++
		}
	}
	if values := len(w.cells.rows); values+dead != w.rows.Len() {
		return fmt.Errorf("%s gave %d values and %d errors for %d rows: a fault in the engine", c.Code, values, dead, w.rows.Len())
	}
	return nil
}

// refuse makes dead letters of a row, one for each sink that it is for.
func (w *work) refuse(row int, d event.Dead) {
	if w.bad[row] {
		return
	}
	w.bad[row] = true
	from, origin := w.rows.From[row], int(w.origins[row])
	d.Position, d.Original = w.in.Range.First+uint64(from), bytes.Clone(w.in.Doc(int(from)))
	for i := range w.script.options.Sinks {
		if w.wanted(i, origin) {
			d.Sink, d.Number = w.script.options.Sinks[i].Name, w.number(i, origin)
			w.dead = append(w.dead, d)
		}
	}
}

// finish fills the result. An event whose rows all died was not dropped, so only the
// script's own count holds.
func (w *work) finish(res *event.Result) error {
	w.result.Start(w.in, res)
	w.result.AddRows(&w.rows)
	res.Dead = append(res.Dead, w.dead...)
	err := w.result.Finish(w.inner.Ran)
	res.Dropped = w.inner.Dropped
	return err
}

// wanted tells whether an output of the script is for sink i.
func (w *work) wanted(i, origin int) bool {
	to := uint64(0)
	if len(w.sent.To) > 0 {
		to = w.sent.To[origin]
	}
	return w.script.options.Wants(i, to)
}

// number is which of the event's rows in sink i an output of the script is.
func (w *work) number(i, origin int) (number uint32) {
	for at := origin - 1; at >= 0 && w.sent.From[at] == w.sent.From[origin]; at-- {
		if w.wanted(i, at) {
			number++
		}
	}
	return number
}

// numberInSink is number for a row of sink i.
func (w *work) numberInSink(i, row int) uint32 {
	for _, origin := range w.origins {
		if !w.wanted(i, int(origin)) {
			continue
		}
		if row == 0 {
			return w.number(i, int(origin))
		}
		row--
	}
	panic("computed: a sink has more rows than it was sent")
}
