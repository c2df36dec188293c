package pipeline

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// refuse moves the rows that sink i refuses from its output to the dead letters.
func (s *settling) refuse(refused *sink.RowErrors, i int) error {
	out, name := &s.res.Outputs[i], s.t.p.config.Sinks[i].Name
	rows := make([]int, len(refused.Rows))
	dead := make([]event.Dead, len(refused.Rows))
	for n, r := range refused.Rows {
		if r.Row < 0 || r.Row >= out.Len() || n > 0 && r.Row <= rows[n-1] {
			return fmt.Errorf("refused row %d of %d: a fault in the sink: %w", r.Row, out.Len(), r.Err)
		}
		rows[n] = r.Row
		dead[n] = event.Dead{
			Position: out.Position(r.Row),
			Sink:     name,
			Number:   s.number(i, r.Row),
			Stage:    cmp.Or(r.Stage, sink.StageSink),
			Error:    r.Err.Error(),
			Script:   s.script,
			Original: bytes.Clone(s.batch.Doc(int(out.From[r.Row]))),
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("refused no rows: a fault in the sink: %w", refused)
	}
	out.RemoveRows(rows)
	s.res.Dead = append(s.res.Dead, dead...)
	return nil
}

// number tells which row of its event in sink i a row is, counted from 0. Those
// that are dead already are no rows any more, but they count. Of an event that
// is tried again there is only the row that was wanted.
func (s *settling) number(i, row int) uint32 {
	out := &s.res.Outputs[i]
	if only := s.only(int(out.From[row])); only.Sink != "" {
		return only.Number
	}
	return number(out, row, s.t.p.config.Sinks[i].Name, s.res.Dead)
}

func number(out *event.Output, row int, sink string, dead []event.Dead) uint32 {
	n := uint32(0)
	for i := row; i > 0 && out.From[i-1] == out.From[row]; i-- {
		n++
	}
	var gone []uint32
	for i := range dead {
		if dead[i].Position == out.Position(row) && ofSink(&dead[i], sink) {
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

// ofSink tells whether a dead row was one of that sink. What is dead for all
// sinks has no rows.
func ofSink(d *event.Dead, sink string) bool { return d.Sink == sink || d.Sink == "" }
