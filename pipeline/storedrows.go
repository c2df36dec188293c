package pipeline

import (
	"bytes"
	"context"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/sink"
)

// This file keeps the rows that a sink has rejected in a pipeline with a state. Their events have
// changed the state for good, so a retry must not run the script, which would count them again or
// number them otherwise: it writes the row that its letter has.

// encodeRow returns a row of sink i as its letter keeps it.
func (d *delivery) encodeRow(i, row int) ([]byte, error) {
	entry := &outbox.Entry{
		Pipeline: d.p.config.Name, Script: d.script, Sinks: []string{d.p.config.Sinks[i].Name},
		Result: event.Result{Outputs: make([]event.Output, 1)},
	}
	entry.Result.Outputs[0].AppendRow(&d.result.Outputs[i], row, 0)
	content, err := entry.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode a rejected row: %w", err)
	}
	return content, nil
}

// decodeRow returns the output that has only the row that encodeRow encoded.
func decodeRow(content string) (*event.Output, error) {
	entry, err := outbox.Decode([]byte(content))
	if err != nil {
		return nil, err
	}
	if n := len(entry.Result.Outputs); n != 1 || entry.Result.Outputs[0].Len() != 1 {
		return nil, fmt.Errorf("it has %d outputs, or more than one row", n)
	}
	return &entry.Result.Outputs[0], nil
}

// deliverStoredRows delivers a batch of retries whose letters have the rows.
func (s *session) deliverStoredRows(ctx context.Context, c *claim) error {
	if err := s.waitForScript(ctx, c); err != nil {
		return err
	}
	s.endScript()
	d := &delivery{session: s, batch: &c.batch, result: &c.result, requested: c.requested, script: s.p.config.Script.String(), storedRows: true, trace: c.trace}
	if err := d.takeStoredRows(); err != nil {
		return err
	}
	if err := d.deliver(ctx, c.number, true); err != nil {
		return err
	}
	c.passed = true
	return s.endTry(c)
}

// takeStoredRows makes the result from the rows of the letters.
func (d *delivery) takeStoredRows() error {
	for i := range d.result.Outputs {
		d.result.Outputs[i].Reset()
	}
	d.result.Dead, d.result.Dropped, d.result.Ran = d.result.Dead[:0], 0, d.batch.Len()
	for i, request := range d.requested {
		row, err := decodeRow(request.Row)
		if err != nil {
			return &event.PermanentError{
				Err:  fmt.Errorf("the row in the dead letter of %s at position %d cannot be read: %w", d.partition, d.batch.Range.First+uint64(i), err),
				Hint: "use the version of perigee that stored it",
			}
		}
		at := d.p.sinkNamed(request.Sink)
		switch {
		case at < 0:
			d.keepLetter(d.unknownSink(i, request), request)
		case !outputFits(row, d.p.config.Sinks[at].Sink):
			d.keepLetter(d.otherColumns(i, request), request)
		default:
			d.result.Outputs[at].AppendRow(row, 0, uint32(i))
		}
	}
	return nil
}

// keepLetter adds the letter of a row that cannot be written.
func (d *delivery) keepLetter(dead event.DeadLetter, request deadletter.Request) {
	dead.Row = []byte(request.Row)
	d.result.Dead = append(d.result.Dead, dead)
}

// otherColumns returns the dead letter of a row whose sink has other columns now.
func (d *delivery) otherColumns(i int, r deadletter.Request) event.DeadLetter {
	return event.DeadLetter{
		Position: d.batch.Range.First + uint64(i), Sink: r.Sink, Number: r.Number, Stage: sink.StageSink,
		Error:    fmt.Sprintf("the row was made for other columns than sink %s has now; its event has changed the state already, so the script cannot make it again", r.Sink),
		Script:   d.script,
		Original: bytes.Clone(d.batch.Doc(i)),
	}
}
