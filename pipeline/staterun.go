package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
)

// This file runs the script on the state of a unit. A run whose changes and rows do not fit a note
// is undone and repeated with fewer events, as a run that hits the limit of its output ends after
// the event before.

// A stateRun is the delivery of one run of the script in its unit.
type stateRun struct {
	unit   *unit
	state  *state.Delivery
	number uint64 // of the delivery in the order of the unit

	at       time.Time // when the first timer is due after it
	hasTimer bool
}

// deliveriesMax is how many deliveries of a unit are in flight between the begin of their script
// and the commit at the home. A script reads over all of them.
const deliveriesMax = 8

// begin takes the turn of the script and returns the state for its run.
func (u *unit) begin(ctx context.Context) (*stateRun, error) {
	if err := u.waitForRoom(ctx); err != nil {
		return nil, err
	}
	for _, turn := range []chan struct{}{u.free, u.script} {
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, ctx.Err() // which gives up the unit
		}
	}
	began, err := u.Unit.Begin()
	if err != nil {
		return nil, err
	}
	return &stateRun{unit: u, state: began}, nil
}

// waitForRoom waits while the changes in memory have reached their bound, or the disk is full.
func (u *unit) waitForRoom(ctx context.Context) error {
	p, waited, logged := u.units.p, time.Time{}, false
	err := u.WaitForRoom(ctx, func(reason error) {
		reason = fmt.Errorf("unit %s of state %s: %w", u.name, p.config.State.Name, reason)
		if waited.IsZero() {
			waited = time.Now()
			if logged = u.units.mayLogWait(waited); logged {
				p.log.Warn("the script waits, because the changes of the state cannot be kept now", "reason", reason, "hint", event.HintOf(reason))
			}
		}
		p.status.addFailure(waitKey{u}, reason)
	})
	if waited.IsZero() {
		return err
	}
	p.status.removeFailure(waitKey{u})
	u.units.waited.Add(int64(time.Since(waited)))
	if err == nil && logged {
		p.log.Info("the script goes on", "unit", u.name, "after", time.Since(waited).Round(time.Millisecond))
	}
	return err
}

// mayLogWait reports whether a wait that begins now is logged: one is in each logInterval.
func (us *units) mayLogWait(now time.Time) bool {
	last := us.waitLogged.Load()
	return now.UnixNano()-last >= int64(logInterval) && us.waitLogged.CompareAndSwap(last, now.UnixNano())
}

// A waitKey is the key of the status of a unit that waits for room.
type waitKey struct{ *unit }

// freeze ends the changes of the run.
func (r *stateRun) freeze(ctx context.Context) (err error) {
	r.at, r.hasTimer, err = r.state.NextTimer(ctx)
	if err == nil {
		err = r.state.Freeze()
	}
	if err != nil {
		return fmt.Errorf("unit %s: %w", r.unit.name, err)
	}
	return nil
}

// end gives the turn of the script to the next run, whose state contains this one, which is frozen.
func (r *stateRun) end() {
	r.unit.timers.set(r.at, r.hasTimer)
	r.number = r.unit.begun
	r.unit.begun++
	r.unit.script <- struct{}{}
}

// discard gives the turn of the script to the next run, whose state is as if this one had not
// been.
func (r *stateRun) discard() error {
	defer func() {
		r.unit.script <- struct{}{}
		r.unit.free <- struct{}{}
	}()
	return r.state.Discard()
}

// restart drops what the run has changed, and begins again in the same turn.
func (r *stateRun) restart() (err error) {
	if err = r.state.Discard(); err == nil {
		r.state, err = r.unit.Unit.Begin()
	}
	return err
}

// runOnState is run in the turn of the unit's script.
func (r *scriptRun) runOnState(ctx context.Context, in *event.Batch, result *event.Result) error {
	if !in.Retry {
		if err := r.unit.Preview(in); err != nil {
			return err
		}
	}
	began, err := r.unit.begin(ctx)
	if err != nil {
		return err
	}
	return r.runIn(ctx, began, in, result, func() error { return nil })
}

// runIn is run for a delivery that has begun. It calls finish, if any event has run, while the
// delivery can still be changed.
func (r *scriptRun) runIn(ctx context.Context, began *stateRun, in *event.Batch, result *event.Result, finish func() error) error {
	part := in.Head(r.unit.fit.limit(in.Len()))
	for {
		err := r.runOnce(ctx, began, &part, result)
		if _, isLimit := errors.AsType[*script.LimitError](err); result.Ran == 0 || err != nil && !isLimit {
			return cmp.Or(began.discard(), err)
		}
		share, failed := r.complete(ctx, began, &part, result, finish)
		if failed != nil {
			return failed
		}
		if !r.unit.fit.count(result.Ran, share) {
			if err := began.restart(); err != nil {
				return err
			}
			if result.Ran > 1 {
				part = part.Head(r.unit.fit.limit(result.Ran))
				continue
			}
			r.rejectEvent(&part, result)
			if _, err := r.complete(ctx, began, &part, result, finish); err != nil {
				return err
			}
		}
		if err := r.observe(began, &part, result); err != nil {
			return err
		}
		r.state = began
		began.end()
		if err == nil && result.Ran < in.Len() {
			err = &script.LimitError{Limit: noteLimit, Err: &script.Error{Script: r.version, Message: "the changes and rows of these events fill a note"}}
		}
		return err
	}
}

// observe moves the clock of the unit on, if it follows the times of events.
func (r *scriptRun) observe(began *stateRun, part *event.Batch, result *event.Result) error {
	r.unit.units.repeated.Add(r.repeated)
	r.repeated = 0
	if part.Timers || part.Retry || !r.unit.FollowsEvents() {
		return nil
	}
	ran := part.Head(result.Ran)
	late, err := r.unit.Observe(&ran, began.state.Clock)
	r.unit.units.late.Add(late)
	r.unit.timers.advance()
	return err
}

// runOnce runs the script over the state of a delivery.
func (r *scriptRun) runOnce(ctx context.Context, began *stateRun, part *event.Batch, result *event.Result) error {
	part.State, part.Time = began.state, began.state.Clock
	defer func() { part.State, r.state = nil, nil }()
	if len(part.Origins) == 0 || part.Retry {
		return r.run(ctx, part, result)
	}
	if err := r.repeats.find(began.state.Tx(), part); err != nil {
		return err
	}
	err := r.run(ctx, r.repeats.leaveOut(part), result)
	if _, isLimit := errors.AsType[*script.LimitError](err); result.Ran == 0 || err != nil && !isLimit {
		return err
	}
	dropped, failed := r.repeats.finish(began.state.Tx(), part, result)
	r.repeated = dropped
	return cmp.Or(failed, err)
}

// complete ends the changes of a run. It returns the share of a note that they take with the rows
// for other sinks: above 1 they do not fit.
func (r *scriptRun) complete(ctx context.Context, began *stateRun, part *event.Batch, result *event.Result, finish func() error) (share float64, err error) {
	if err := finish(); err != nil {
		return 0, err
	}
	if err := began.freeze(ctx); err != nil {
		return 0, err
	}
	ran := part.Head(result.Ran)
	d := &delivery{session: r.session, batch: &ran, result: result, script: r.version, run: began}
	return d.shareOfNote()
}

// shareOfNote returns the share of a note that the delivery takes.
func (d *delivery) shareOfNote() (float64, error) {
	bytes := d.run.state.Bytes()
	if len(d.p.config.Sinks) > 1 {
		bytes += len(d.batch.Data)
		for i := range d.result.Dead {
			bytes += len(d.result.Dead[i].Document)
		}
		for i := range d.result.Outputs {
			if i != d.p.config.Home {
				bytes += outputBytes(&d.result.Outputs[i])
			}
		}
	}
	if bytes <= state.NoteGoal { // its note is smaller
		return float64(bytes) / contentGoal, nil
	}
	content, err := d.noteContent()
	if err != nil {
		return 0, err
	}
	return d.run.unit.ShareOfNote(d.run.state, content)
}

// contentGoal makes shares of deliveries that were not encoded small, so that they do not limit the
// next ones.
const contentGoal = state.NoteGoal * 4

// outputBytes returns the memory of an output, which is more than its encoding.
func outputBytes(out *event.Output) int {
	n := len(out.Data) + 8*len(out.Ends)
	if out.Columns == nil {
		return n
	}
	for i := range out.Columns.Vectors {
		v := &out.Columns.Vectors[i]
		n += len(v.Null) + 10*(len(v.Ints)+len(v.Floats)) + len(v.Bytes) + 5*len(v.Ends)
	}
	return n
}

// rejectEvent makes the only event of a run, which is too large for a note, a dead letter. Its
// changes were dropped.
func (r *scriptRun) rejectEvent(part *event.Batch, result *event.Result) {
	result.Reset()
	result.Ran = 1
	result.Dead = append(result.Dead, event.DeadLetter{
		Position: part.Range.First, Stage: "script", Script: r.version, Original: bytes.Clone(part.Doc(0)),
		Error: fmt.Sprintf("the event changes more of the state, and makes more rows for sinks other than its home, than a note of %d MiB has room for; "+
			"change fewer nodes for one event, or split it before the script", state.NoteGoal>>20),
	})
}

// noteLimit is the limit of a run whose changes and rows fill a note.
const noteLimit = "note"

func isNoteLimit(limit *script.LimitError) bool { return limit != nil && limit.Limit == noteLimit }

// A noteFit knows how many events of a unit fit a note. Its zero value knows no limit.
type noteFit struct{ events int }

// limit returns how many of n events to run at once.
func (f *noteFit) limit(n int) int {
	if f.events > 0 {
		return min(n, f.events)
	}
	return n
}

// count records the share of a note that a run of n events takes, and reports whether it fits. The
// limit is lower after a run that does not fit, and higher after others.
func (f *noteFit) count(n int, share float64) (fits bool) {
	if share > 1 {
		f.events = max(1, min(n/2, int(0.8*float64(n)/share)))
		return false
	}
	if f.events > 0 && n >= f.events {
		f.events += f.events/8 + 1
		if share < 0.4 {
			f.events *= 2
		}
	}
	return true
}
