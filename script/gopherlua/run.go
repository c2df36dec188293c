package gopherlua

import (
	"context"
	"errors"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
)

// A run is one batch on its way through a machine.
type run struct {
	*program
	in      *event.Batch
	result  *script.ResultBuilder
	ran     int // events of the batch
	machine *machine
	to      uint64 // the sinks of what is being appended to the result; 0: main did not say
	doc     pure.Document
}

// runEvents runs the events of the batch, up to the first limit.
func (r *run) runEvents(ctx context.Context) error {
	end := time.Now().Add(r.opts.Limits.BatchTime)
	defer func() {
		if r.machine != nil { // a new one could not be made
			r.machine.deadline.unfollow()
		}
	}()
	r.startMachine(ctx, 0)
	for i := range r.in.Len() {
		if i > 0 && !time.Now().Before(end.Add(r.machine.deadline.waited)) {
			return r.batchTimeLimit(&script.Error{Script: r.file, Message: "the batch took too long"})
		}
		if err := r.runEvent(ctx, i, end); err != nil {
			return err
		}
		r.ran = i + 1
	}
	return nil
}

// startMachine prepares the machine for the batch, which has waited for the given time.
func (r *run) startMachine(ctx context.Context, waited time.Duration) {
	r.machine.ctx, r.machine.deadline.waited = ctx, waited
	r.machine.deadline.stopWith(ctx)
}

func (r *run) batchTimeLimit(where *script.Error) error {
	return &script.LimitError{Limit: "batch time", Err: where}
}

// runEvent runs event i. An error ends the run.
func (r *run) runEvent(ctx context.Context, i int, end time.Time) error {
	if err := r.doc.Index(r.in.Doc(i)); err != nil {
		r.result.Fail(i, "parse", err)
		return nil
	}
	now := time.Now()
	until := now.Add(r.opts.Limits.EventTime)
	end = end.Add(r.machine.deadline.waited)
	ofBatch := end.Before(until)
	if ofBatch {
		until = end
	}
	r.machine.deadline.start(until, now.Add(r.opts.Limits.WallTime))
	err := r.machine.callMain(r, i)
	late := r.machine.deadline.stop()
	if err != nil {
		r.result.Discard(i)
	}
	if r.machine.broken && !late {
		if err := r.replaceMachine(ctx); err != nil {
			return err
		}
	}
	switch {
	case late:
		return r.handleTimeout(ctx, i, err, ofBatch)
	case err == nil:
		return nil
	}
	var limit *script.LimitError
	if errors.As(err, &limit) {
		return limit
	}
	r.result.Fail(i, "script", r.machine.scriptError(err))
	return nil
}

// handleTimeout handles an event that the deadline stopped. If err is nil, the event
// ended just in time.
func (r *run) handleTimeout(ctx context.Context, i int, err error, ofBatch bool) error {
	if ofBatch && r.machine.deadline.isOver() {
		ofBatch = false // the event has waited
	}
	fault := r.machine.lateError(err, r.opts.Limits, ofBatch)
	if err := r.replaceMachine(ctx); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case ofBatch && i > 0:
		return r.batchTimeLimit(fault)
	}
	r.result.Fail(i, "script", fault)
	return nil
}

// replaceMachine discards the machine, whose state a limit may have left inconsistent,
// and acquires another.
func (r *run) replaceMachine(ctx context.Context) error {
	waited := r.machine.deadline.waited
	r.machine.deadline.unfollow()
	r.machine.broken = true
	r.machine.member.Release()
	m, err := r.acquireMachine(context.WithoutCancel(ctx))
	r.machine = m
	if err == nil {
		r.startMachine(ctx, waited)
	}
	return err
}
