package computed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/script"
)

// limitsInARow is how often the code of a column may hit a limit in one batch.
const limitsInARow = 3

// A work is one batch on its way through the columns. Its memory is used again.
type work struct {
	script     *Script
	inner      event.Result          // of the script before the columns
	values     event.Result          // of the code of a column
	checkers   []*document.Extractor // by column
	extractors []*document.Extractor // by sink
	checked    event.Columns

	in      *event.Batch
	rows    event.Output // as far as the columns have come
	next    event.Output // rows with one more column
	numbers []uint32     // which output of its event a row was
	origins []uint32     // which output of the script a row was
	sent    sent
	cells   cells
	bad     []bool // by row: it is dead
	dead    []event.Dead
}

// start takes over what came of the script.
func (w *work) start(s *Script, in *event.Batch) {
	w.in = in
	w.rows, w.inner.Outputs[0] = w.inner.Outputs[0], w.rows
	w.dead = append(w.dead[:0], w.inner.Dead...)
	w.numbers, w.origins = w.numbers[:0], w.origins[:0]
	w.sent.take(&w.rows)
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

// call passes the rows through the code of a column, in one crossing unless a
// limit ends it.
func (w *work) call(ctx context.Context, c *Column) error {
	all := event.Batch{
		Partition: w.in.Partition, Range: event.Range{Count: uint64(w.rows.Len())}, Data: w.rows.Data, Ends: w.rows.Ends,
	}
	batch, first := all, 0
	for limits := 1; batch.Len() > 0; limits++ {
		limit, err := passed(c.Code.Run(ctx, &batch, &w.values))
		if err != nil {
			return err
		}
		w.collect(c, first)
		first += w.values.Ran
		if limit == nil && w.values.Ran < batch.Len() {
			return fmt.Errorf("%s computed %d of %d values and gave no reason: a fault in the engine", c.Code, w.values.Ran, batch.Len())
		}
		if limit != nil && limits == limitsInARow {
			return limit
		}
		batch = all.Tail(first)
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

// deliver fills the outputs of the sinks and their columns.
func (w *work) deliver(res *event.Result) error {
	for i := range res.Outputs {
		res.Outputs[i].Reset()
	}
	w.script.options.Share(&w.rows, res.Outputs)
	for i := range res.Outputs {
		out := &res.Outputs[i]
		out.Partition, out.Range = w.in.Partition, w.in.Range.Head(uint64(w.inner.Ran))
		if w.script.options.Sinks[i].Columns == nil {
			out.Columns = nil
			continue
		}
		err := report.Fit(w.extractors[i].Extract, out, func(_ int, _ uint32, bad report.Bad) { w.misfits(i, bad) })
		if err != nil {
			return fmt.Errorf("extract columns: %w", err)
		}
	}
	script.Sort(w.dead)
	res.Dead = append(res.Dead[:0], w.dead...)
	res.Dropped, res.Ran = w.inner.Dropped, w.inner.Ran
	return nil
}

// misfits makes a dead letter of a row that does not fit the columns of sink i.
func (w *work) misfits(i int, bad report.Bad) {
	origin := w.origin(i, bad.Row)
	from := w.sent.from[origin]
	w.dead = append(w.dead, event.Dead{
		Position: w.in.Range.First + uint64(from), Sink: w.script.options.Sinks[i].Name, Number: w.number(i, origin),
		Stage: "column", Error: bad.Reason, Script: w.script.String(), Original: bytes.Clone(w.in.Doc(int(from))),
	})
}

// passed tells a limit, after which what ran goes on, from other errors.
func passed(err error) (limit, other error) {
	var l *script.LimitError
	if errors.As(err, &l) {
		return err, nil
	}
	return nil, err
}
