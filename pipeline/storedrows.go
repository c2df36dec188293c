package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
)

// This file keeps rows that do not reach their sink in a pipeline with a state. Their events have
// changed the state for good, so a retry must not run the script, which would count them again or
// number them otherwise. The letter of a row that a sink rejected has the row, which a retry writes as
// it is. The letter of a row that failed before, in a computed column or in the columns of the sink,
// has the document that the script returned: a retry goes on from there, with the columns of today.

// keepRow makes the dead letter of a row of sink i keep what a retry needs.
func (d *delivery) keepRow(dead *event.DeadLetter, i, row int) (err error) {
	switch {
	case d.storedRows: // a retry goes on from the same place again
		keepRequest(dead, d.requestOf(int(d.result.Outputs[i].From[row])))
	case d.p.units != nil:
		dead.Row, err = d.encodeRow(i, row)
	}
	return err
}

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

// DecodeRow returns the row of event.DeadLetter.Row as an output that has only this row.
func DecodeRow(row []byte) (*event.Output, error) {
	entry, err := outbox.Decode(row)
	if err != nil {
		return nil, err
	}
	if n := len(entry.Result.Outputs); n != 1 || entry.Result.Outputs[0].Len() != 1 {
		return nil, fmt.Errorf("it has %d outputs, or more than one row", n)
	}
	return &entry.Result.Outputs[0], nil
}

// deliverStoredRows delivers a batch of retries for rows of events that have changed a state.
func (s *session) deliverStoredRows(ctx context.Context, c *claim) error {
	if err := s.waitForScript(ctx, c); err != nil {
		return err
	}
	s.endScript()
	d := &delivery{session: s, batch: &c.batch, result: &c.result, requested: c.requested, script: s.p.config.Script.String(), storedRows: true, trace: c.trace}
	if err := d.takeStoredRows(ctx, c); err != nil {
		return err
	}
	if err := d.deliver(ctx, c.number, true); err != nil {
		return err
	}
	c.passed = true
	return s.endTry(c)
}

// takeStoredRows makes the result from what the letters have: all of them documents, or none.
func (d *delivery) takeStoredRows(ctx context.Context, c *claim) error {
	d.result.Reset()
	if d.requested[0].Document != "" {
		return d.finishDocuments(ctx, c)
	}
	for i, request := range d.requested {
		if request.Row == "" {
			d.addLetter(d.noRow(i), request)
			continue
		}
		row, err := DecodeRow([]byte(request.Row))
		if err != nil {
			return &event.PermanentError{
				Err:  fmt.Errorf("the row in the dead letter of %s at position %d cannot be read: %w", d.partition, d.batch.Range.First+uint64(i), err),
				Hint: "use the version of perigee that stored it",
			}
		}
		at := d.p.sinkNamed(request.Sink)
		switch {
		case at < 0:
			d.addLetter(d.unknownSink(i, request), request)
		case !outputFits(row, d.p.config.Sinks[at].Sink):
			d.addLetter(d.otherColumns(i, request), request)
		default:
			d.result.Outputs[at].AppendRow(row, 0, uint32(i))
		}
	}
	d.result.Ran = d.batch.Len()
	return nil
}

// finishDocuments makes the result from the documents of the letters, with the computed columns and
// the columns of sinks as they are now. It repeats what hits a limit, as deliverEvents does.
func (d *delivery) finishDocuments(ctx context.Context, c *claim) error {
	rows, unknown := &event.Output{}, []int(nil)
	for i, request := range d.requested {
		at := d.p.sinkNamed(request.Sink)
		if at < 0 {
			unknown = append(unknown, i)
			continue
		}
		rows.Data = append(rows.Data, request.Document...)
		rows.Ends = append(rows.Ends, uint32(len(rows.Data)))
		rows.From, rows.To = append(rows.From, uint32(i)), append(rows.To, 1<<at)
	}
	for {
		err := d.finishRows(ctx, rows)
		limit, isLimit := errors.AsType[*script.LimitError](err)
		if err == nil {
			break
		}
		if !isLimit {
			return fmt.Errorf("make rows from the documents of dead letters: %w", err)
		}
		if err := d.countLimits(ctx, c, limit, d.batch.Range.First); err != nil {
			return err
		}
	}
	for i := range d.result.Dead {
		dead := &d.result.Dead[i]
		keepRequest(dead, d.requestOf(int(dead.Position-d.batch.Range.First)))
	}
	for _, i := range unknown {
		d.addLetter(d.unknownSink(i, d.requested[i]), d.requested[i])
	}
	d.result.Dropped = 0 // rows fit, or are dead
	return nil
}

// finishRows calls the script's FinishRows on the batch.
func (d *delivery) finishRows(ctx context.Context, rows *event.Output) error {
	of, ok := d.p.config.Script.(script.RowScript)
	if !ok {
		return fmt.Errorf("script %s: %w", d.script, errors.ErrUnsupported)
	}
	result := event.Result{Outputs: d.result.Outputs[:d.p.rowSinks()], Dead: d.result.Dead}
	err := of.FinishRows(ctx, d.batch, rows, &result)
	d.result.Dead, d.result.Ran = result.Dead, result.Ran
	return err
}

// addLetter adds the letter of a row that cannot be written.
func (d *delivery) addLetter(dead event.DeadLetter, request deadletter.Request) {
	keepRequest(&dead, request)
	d.result.Dead = append(d.result.Dead, dead)
}

// keepRequest makes the letter of a retry that fails have the row of the retry.
func keepRequest(dead *event.DeadLetter, request deadletter.Request) {
	dead.Sink, dead.Number = request.Sink, request.Number
	dead.Row, dead.Document = []byte(request.Row), []byte(request.Document)
}

// noRow returns the dead letter of a row that its letter does not have.
func (d *delivery) noRow(i int) event.DeadLetter {
	return d.rowLetter(i, "its letter does not have the row: it was stored before the pipeline had a state, or by an earlier version of perigee. "+
		"The script cannot make the row again, since it would change the state; send the event again, or purge the letter")
}

// otherColumns returns the dead letter of a row whose sink has other columns now.
func (d *delivery) otherColumns(i int, r deadletter.Request) event.DeadLetter {
	return d.rowLetter(i, fmt.Sprintf("the row was made for other columns than sink %s has now; its event has changed the state already, so the script cannot make it again", r.Sink))
}

// rowLetter returns the dead letter of the row that is requested of event i.
func (d *delivery) rowLetter(i int, reason string) event.DeadLetter {
	return event.DeadLetter{
		Position: d.batch.Range.First + uint64(i), Stage: sink.StageSink, Error: reason, Script: d.script, Original: bytes.Clone(d.batch.Doc(i)),
	}
}
