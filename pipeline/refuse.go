package pipeline

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// refuse moves the rows that a sink refuses from its output to the dead letters.
func (t *partition) refuse(refused *sink.RowErrors, batch *event.Batch, out *event.Output, res *event.Result) error {
	rows := make([]int, len(refused.Rows))
	dead := make([]event.Dead, len(refused.Rows))
	for i, r := range refused.Rows {
		if r.Row < 0 || r.Row >= out.Len() || i > 0 && r.Row <= rows[i-1] {
			return fmt.Errorf("refused row %d of %d: a fault in the sink: %w", r.Row, out.Len(), r.Err)
		}
		rows[i] = r.Row
		dead[i] = event.Dead{
			Position: out.Position(r.Row),
			Number:   number(out, r.Row, res.Dead),
			Stage:    "sink",
			Error:    r.Err.Error(),
			Script:   t.p.config.Script.String(),
			Original: bytes.Clone(batch.Doc(int(out.From[r.Row]))),
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("refused no rows: a fault in the sink: %w", refused)
	}
	out.Remove(rows)
	res.Dead = append(res.Dead, dead...)
	return nil
}

// number tells which output of its event a row is, counted from 0. The outputs
// of the event that are dead already are no rows any more, but they count.
func number(out *event.Output, row int, dead []event.Dead) uint32 {
	n := uint32(0)
	for i := row; i > 0 && out.From[i-1] == out.From[row]; i-- {
		n++
	}
	var gone []uint32
	for i := range dead {
		if dead[i].Position == out.Position(row) {
			gone = append(gone, dead[i].Number)
		}
	}
	slices.Sort(gone)
	for _, g := range gone {
		if g <= n {
			n++
		}
	}
	return n
}
