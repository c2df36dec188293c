package pipeline

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink"
)

// rejectRows moves the rows that sink i rejects from its output to the dead
// letters.
func (d *delivery) rejectRows(rejected *sink.RowErrors, i int) error {
	out := &d.result.Outputs[i]
	if len(rejected.Rows) == 0 {
		return fmt.Errorf("sink rejected no rows: this is a bug in the sink: %w", rejected)
	}
	rows := make([]int, len(rejected.Rows))
	dead := make([]event.DeadLetter, len(rejected.Rows))
	for n, r := range rejected.Rows {
		if r.Row < 0 || r.Row >= out.Len() || n > 0 && r.Row <= rows[n-1] {
			return fmt.Errorf("sink rejected row %d of %d: this is a bug in the sink: %w", r.Row, out.Len(), r.Err)
		}
		rows[n] = r.Row
		dead[n] = event.DeadLetter{
			Position: out.Position(r.Row),
			Sink:     d.p.config.Sinks[i].Name,
			Number:   d.rowNumber(i, r.Row),
			Stage:    cmp.Or(r.Stage, sink.StageSink),
			Error:    r.Err.Error(),
			Script:   d.script,
			Original: bytes.Clone(d.batch.Doc(int(out.From[r.Row]))),
		}
		if err := d.keepRow(&dead[n], i, r.Row); err != nil {
			return err
		}
	}
	out.RemoveRows(rows)
	d.result.Dead = append(d.result.Dead, dead...)
	return nil
}

// rowNumber returns the row's number among the rows of its event in sink i,
// including those that are dead letters.
func (d *delivery) rowNumber(i, row int) uint32 {
	out := &d.result.Outputs[i]
	if d.storedRows {
		return d.requestOf(int(out.From[row])).Number
	}
	var removed []uint32
	for n := range d.result.Dead {
		if dead := &d.result.Dead[n]; dead.Position == out.Position(row) && dead.Sink == d.p.config.Sinks[i].Name {
			removed = append(removed, dead.Number)
		}
	}
	return out.RowNumber(row, removed)
}

// requestOf returns what of event i of the batch is wanted.
func (d *delivery) requestOf(i int) deadletter.Request {
	if len(d.requested) == 0 {
		return deadletter.Request{}
	}
	return d.requested[i]
}

// selectRequested removes from the result of retried events everything but the
// requested rows: the others were written before. Whatever is left of the event
// or of its dead letters belongs to the requested row; the store of dead letters
// knows its sink and number.
func (d *delivery) selectRequested() {
	if len(d.requested) == 0 {
		return
	}
	// Which events produced anything, and which produced what was requested.
	produced, selected := make([]bool, d.result.Ran), make([]bool, d.result.Ran)
	for i := range d.result.Outputs {
		d.selectRows(i, produced, selected)
	}
	d.selectDead(produced, selected)
	for i := range d.result.Ran {
		switch r := d.requestOf(i); {
		case !produced[i] || selected[i]: // an event that produced nothing is counted as dropped
		case !d.hasSink(r.Sink):
			d.result.Dead = append(d.result.Dead, d.unknownSink(i, r))
		default:
			d.result.Dropped++
		}
	}
}

// selectRows removes the rows of sink i that are not requested.
func (d *delivery) selectRows(i int, produced, selected []bool) {
	out, name := &d.result.Outputs[i], d.p.config.Sinks[i].Name
	var unwanted []int
	for row, from := range out.From {
		produced[from] = true
		if r := d.requestOf(int(from)); r.Sink == "" || r.Sink == name && r.Number == d.rowNumber(i, row) {
			selected[from] = true
		} else {
			unwanted = append(unwanted, row)
		}
	}
	out.RemoveRows(unwanted)
}

// selectDead removes the dead letters of rows that are not requested. It keeps
// those of events that fail as a whole.
func (d *delivery) selectDead(produced, selected []bool) {
	d.result.Dead = slices.DeleteFunc(d.result.Dead, func(dead event.DeadLetter) bool {
		at := int(dead.Position - d.batch.Range.First)
		produced[at] = true
		r := d.requestOf(at)
		if r.Sink != "" && dead.Sink != "" && (dead.Sink != r.Sink || dead.Number != r.Number) {
			return true
		}
		selected[at] = true
		return false
	})
}

func (d *delivery) hasSink(name string) bool { return d.p.sinkNamed(name) >= 0 }

// sinkNamed returns the index of a sink, or -1.
func (p *Pipeline) sinkNamed(name string) int {
	return slices.IndexFunc(p.config.Sinks, func(s Sink) bool { return s.Name == name })
}

// unknownSink returns the dead letter of a retry for a sink that the pipeline does
// not have any more.
func (d *delivery) unknownSink(i int, r deadletter.Request) event.DeadLetter {
	var names []string
	for _, s := range d.p.config.Sinks {
		names = append(names, s.Name)
	}
	return event.DeadLetter{
		Position: d.batch.Range.First + uint64(i), Sink: r.Sink, Number: r.Number,
		Stage:    sink.StageSink,
		Error:    fmt.Sprintf("unknown sink %q; the pipeline has %s", r.Sink, strings.Join(names, ", ")),
		Script:   d.script,
		Original: bytes.Clone(d.batch.Doc(i)),
	}
}
