//go:build cgo && luajit

package luajit

import (
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
		res.Reset()
		return err
	}
	if in.State != nil && !in.Time.IsZero() {
		ctx = script.WithTime(ctx, in.Time)
	}
	if e.RunRows(ctx, in, 0) && s.documentsOnly && ctx.Err() == nil {
		copyRows(e, in, res)
		s.readLines(e.Engine)
		s.release(e)
		return nil
	}
	r := s.runs.Get().(*run)
	defer s.runs.Put(r)
	r.start(ctx, in, res)
	e, err = r.runAll(e)
	if e != nil {
		s.release(e)
	}
	return err
}

// FinishRows implements script.RowScript.
func (s *Script) FinishRows(ctx context.Context, in *event.Batch, rows *event.Output, res *event.Result) error {
	r := s.runs.Get().(*run)
	defer s.runs.Put(r)
	r.start(ctx, in, res)
	r.result.AddRows(rows)
	return r.result.Finish(in.Len())
}

// copyRows completes a batch whose only results are rows for one sink without columns.
func copyRows(e *engine, in *event.Batch, res *event.Result) {
	data, ends, from, dropped := e.Rows()
	out := &res.Outputs[0]
	out.Data, out.To, out.Columns = append(out.Data[:0], data...), out.To[:0], nil
	if len(ends) == 1 { // quicker than a copy
		out.Ends, out.From = append(out.Ends[:0], ends[0]), append(out.From[:0], from[0])
	} else {
		out.Ends, out.From = append(out.Ends[:0], ends...), append(out.From[:0], from...)
	}
	out.SetRange(in, in.Len())
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], dropped, in.Len()
}

// A run is one batch on its way. Its memory is used again.
type run struct {
	s      *Script
	result *script.ResultBuilder

	ctx context.Context
	in  *event.Batch
	res *event.Result
	ran int               // events of the batch
	bad []report.Rejected // rows of an output that has only columns
}

func (s *Script) newRun() any {
	return &run{s: s, result: script.NewResultBuilder(&s.opts, s)}
}

func (r *run) start(ctx context.Context, in *event.Batch, res *event.Result) {
	r.ctx, r.in, r.res, r.ran, r.bad = ctx, in, res, 0, r.bad[:0]
	r.result.Start(in, res)
}

// runAll goes on after a first crossing until every event has run or a limit of the
// batch ends it, with a fresh engine after each limit. It returns the engine that it
// holds in the end.
func (r *run) runAll(e *engine) (*engine, error) {
	start := time.Time{}
	for {
		first, out := r.ran, e.Outcome()
		if err := r.ctx.Err(); err != nil {
			r.s.release(e)
			r.res.Reset()
			return nil, err
		}
		whole := first == 0 && out.Limit == luajit.OK && len(out.To) == 0
		if err := r.addOutcome(e, out); err != nil {
			return e, err
		}
		if out.Limit == luajit.OK {
			return e, r.finish(e, whole)
		}
		limit := r.limitError(e, out, first)
		if limit == nil && r.ran == r.in.Len() {
			return e, r.finish(e, false)
		}
		if start.IsZero() {
			start = time.Now().Add(-r.s.opts.Limits.EventTime)
		}
		if limit == nil && time.Since(start) >= r.s.opts.Limits.BatchTime {
			limit = &script.LimitError{Limit: "batch time", Err: &script.Error{
				Script: r.s.code.Name, Message: "events hit their time limit until the batch's was used up"}}
		}
		if limit != nil {
			if err := r.finish(e, false); err != nil {
				return e, err
			}
			return e, limit
		}
		r.s.release(e)
		var err error
		if e, err = r.s.acquire(r.ctx); err != nil {
			return nil, err
		}
		e.RunRows(r.ctx, r.in, r.ran)
	}
}

// limitError tells whether the run ended by a limit of the batch. An event that takes
// the whole batch's time or output alone is at fault itself.
func (r *run) limitError(e *engine, out *luajit.Outcome, first int) error {
	name := ""
	switch {
	case out.Limit == luajit.BatchTime && out.Ran > first:
		name = "batch time"
	case out.Limit == luajit.Output:
		name = "output"
	}
	fault := r.s.scriptError(e.VM.LastError())
	if name != "" {
		return &script.LimitError{Limit: name, Err: fault}
	}
	if out.Limit == luajit.BatchTime {
		r.result.Fail(r.ran, "script", fault)
		r.ran++
	}
	return nil
}

// addOutcome adds what came of a crossing to the result.
func (r *run) addOutcome(e *engine, out *luajit.Outcome) error {
	if r.s.columnsOnly {
		if out.ColumnsIncomplete {
			return fmt.Errorf("extract columns: %w", document.ErrMemory)
		}
		r.gatherColumns(e, out)
	}
	r.result.AddRows(&event.Output{Data: out.Data, Ends: out.Ends, From: out.From, To: out.To})
	for _, d := range out.DeadEvents() {
		r.deadEvent(d)
	}
	r.ran = out.Ran
	if e.HasEffects() {
		r.s.readEffects(e.Engine)
	}
	r.s.readLines(e.Engine)
	return nil
}

func (r *run) deadEvent(d luajit.DeadEvent) {
	if d.ScriptError == nil {
		r.result.Fail(d.Event, "parse", &report.SyntaxError{Code: d.ParseError, Offset: d.Offset})
		return
	}
	file := cmp.Or(d.ScriptError.File, r.s.code.Name)
	r.result.Fail(d.Event, "script", &script.Error{
		Script: file, Line: d.ScriptError.Line, Message: r.s.source.WithHint(file, d.ScriptError.Line, d.ScriptError.Message), Traceback: d.ScriptError.Traceback,
	})
}
