//go:build cgo

package luajit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// Run passes the batch through main.
func (s *Script) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	e, err := s.acquire(ctx)
	if err != nil {
		reset(res)
		return err
	}
	if e.Pass(ctx, in, 0) && s.plain && ctx.Err() == nil {
		keep(e, in, res)
		s.release(e)
		return nil
	}
	reset(res)
	r := run{s: s, ctx: ctx, in: in, res: res}
	e, err = r.all(e)
	if e != nil {
		s.release(e)
	}
	r.settle()
	return err
}

// keep is all that there is to do for a batch of which nothing came but rows for one
// sink, without columns.
func keep(e *engine, in *event.Batch, res *event.Result) {
	data, ends, from, dropped := e.Rows()
	out := &res.Outputs[0]
	out.Data, out.To, out.Columns = append(out.Data[:0], data...), out.To[:0], nil
	if len(ends) == 1 { // quicker than a copy
		out.Ends, out.From = append(out.Ends[:0], ends[0]), append(out.From[:0], from[0])
	} else {
		out.Ends, out.From = append(out.Ends[:0], ends...), append(out.From[:0], from...)
	}
	name(out, in, in.Len())
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], dropped, in.Len()
}

func reset(res *event.Result) {
	for i := range res.Outputs {
		res.Outputs[i].Reset()
	}
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, 0
}

// A run is one batch on its way.
type run struct {
	s   *Script
	ctx context.Context
	in  *event.Batch
	res *event.Result
	bad []report.Bad // rows of a bare output
}

// all goes on after a first crossing until every event has run or a limit of the
// batch ends it, with a fresh engine after each limit. It returns the engine that it
// holds in the end.
func (r *run) all(e *engine) (*engine, error) {
	start := time.Time{}
	for {
		first, out := r.res.Ran, e.Outcome()
		if err := r.ctx.Err(); err != nil {
			r.s.release(e)
			reset(r.res)
			return nil, err
		}
		whole := first == 0 && out.Limit == luajit.OK && len(out.To) == 0
		if err := r.take(e, out); err != nil {
			return e, err
		}
		if out.Limit == luajit.OK {
			return e, r.columns(e, whole)
		}
		limit := r.limit(e, out, first)
		if limit == nil && r.res.Ran == r.in.Len() {
			return e, r.columns(e, false)
		}
		if start.IsZero() {
			start = time.Now().Add(-r.s.opts.Limits.EventTime)
		}
		if limit == nil && time.Since(start) >= r.s.opts.Limits.BatchTime {
			limit = &script.LimitError{Limit: "batch time", Err: &script.Error{
				Script: r.s.code.Name, Message: "events hit their time limit until the batch's was used up"}}
		}
		if limit != nil {
			if err := r.columns(e, false); err != nil {
				return e, err
			}
			return e, limit
		}
		r.s.release(e)
		var err error
		if e, err = r.s.acquire(r.ctx); err != nil {
			return nil, err
		}
		e.Pass(r.ctx, r.in, r.res.Ran)
	}
}

// limit tells whether the run ended by a limit of the batch. An event that takes
// the whole batch's time or output alone is at fault itself.
func (r *run) limit(e *engine, out *luajit.Outcome, first int) error {
	name := ""
	switch {
	case out.Limit == luajit.BatchTime && out.At > first:
		name = "batch time"
	case out.Limit == luajit.Output:
		name = "output"
	}
	fault := r.s.fault(e.VM.Fault())
	if name != "" {
		return &script.LimitError{Limit: name, Err: fault}
	}
	if out.Limit == luajit.BatchTime {
		r.bury(r.res.Ran, "", 0, "script", fault.Error(), fault.Traceback)
		r.res.Ran++
	}
	return nil
}

// take adds what came of a crossing to the result.
func (r *run) take(e *engine, out *luajit.Outcome) error {
	if r.s.bare {
		if out.Short {
			return fmt.Errorf("extract columns: %w", document.ErrMemory)
		}
		r.gather(e, out)
	}
	sent := event.Output{Data: out.Data, Ends: out.Ends, From: out.From, To: out.To}
	r.s.opts.Share(&sent, r.res.Outputs)
	for _, d := range out.Dead() {
		r.deadEvent(d)
	}
	r.res.Dropped += out.Dropped
	r.res.Ran = out.At
	if e.Told() {
		r.s.drain(e.Engine)
	}
	return nil
}

func (r *run) deadEvent(d luajit.Dead) {
	if d.Script == nil {
		why := report.SyntaxError{Fault: d.Fault, Offset: d.Offset}
		r.bury(d.Event, "", 0, "parse", why.Error(), "")
		return
	}
	err := script.Error{Script: cmp.Or(d.Script.File, r.s.code.Name), Line: d.Script.Line, Message: d.Script.Message}
	text := err.Error()
	if err.Line == 0 {
		text = err.Message
	}
	r.bury(d.Event, "", 0, "script", text, d.Script.Traceback)
}

func (r *run) bury(i int, sink string, number uint32, stage, why, traceback string) {
	r.res.Dead = append(r.res.Dead, event.Dead{
		Position: r.in.Range.First + uint64(i), Sink: sink, Number: number, Stage: stage, Error: why,
		Traceback: traceback, Script: r.s.name, Original: bytes.Clone(r.in.Doc(i)),
	})
}

// settle names the outputs.
func (r *run) settle() {
	for i := range r.res.Outputs {
		name(&r.res.Outputs[i], r.in, r.res.Ran)
	}
	script.Sort(r.res.Dead)
}

// name says of which events an output is.
func name(out *event.Output, in *event.Batch, ran int) {
	out.Partition = in.Partition
	out.Range.First, out.Range.Count, out.Range.Prints = in.Range.First, uint64(ran), in.Range.Prints // Head copies more
	if len(out.Range.Prints) > 0 {
		out.Range.Prints = out.Range.Prints[:ran:ran]
	}
}
