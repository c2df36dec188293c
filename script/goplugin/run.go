package goplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/script"
)

// A run is one batch on its way through a plugin.
type run struct {
	*workshop
	script *loadedScript
	ctx    context.Context
	in     *event.Batch
	res    *event.Result
	out    *event.Output // all that was emitted
	limit  error         // what ended the run early
}

// A state is what has become of an event.
type state uint8

const (
	pending state = iota // nothing: when the run has ended, it is dropped
	emitted              // it is in the output
	refused              // it is dead
)

// check makes dead letters of the documents that are none, and marks them.
func (r *run) check() error {
	r.state = slices.Grow(r.state[:0], r.in.Len())[:r.in.Len()]
	clear(r.state)
	r.res.Ran = r.in.Len()
	report, err := r.checker.Extract(r.in.Data, r.in.Ends, &r.none)
	if err != nil {
		return fmt.Errorf("check documents: %w", err)
	}
	for _, bad := range report.Bad {
		r.refuse(bad.Row, "parse", errors.New(bad.Reason))
	}
	return nil
}

// refuse makes a dead letter of event i; the first reason is enough.
func (r *run) refuse(i int, stage string, err error) {
	if r.state[i] == refused {
		return
	}
	r.state[i] = refused
	r.bury(i, "", 0, stage, err)
}

func (r *run) bury(i int, sink string, number uint32, stage string, err error) {
	d := event.Dead{
		Position: r.in.Range.First + uint64(i), Sink: sink, Number: number, Stage: stage, Error: err.Error(),
		Script: r.script.name, Original: bytes.Clone(r.in.Doc(i)),
	}
	if fault, ok := err.(*script.Error); ok {
		d.Error, d.Traceback = fault.Message, fault.Traceback
	}
	r.res.Dead = append(r.res.Dead, d)
}

// endDocument ends the document of event i that was appended to the output, for the
// sinks in to.
func (r *run) endDocument(i int, to uint64) {
	script.End(r.out, i, to)
	r.state[i] = emitted
	if len(r.out.Data) > r.script.opts.Limits.Output {
		r.overflown(i)
	}
}

// overflown takes event i back, with which the output is too large. Alone it is
// at fault itself; otherwise the batch ends before it.
func (r *run) overflown(i int) {
	rows := len(r.out.From)
	for rows > 0 && r.out.From[rows-1] == uint32(i) {
		rows--
	}
	first := 0
	if rows > 0 {
		first = int(r.out.Ends[rows-1])
	}
	alone := len(r.out.Data)-first > r.script.opts.Limits.Output
	script.Cut(r.out, first, rows)
	fault := fmt.Errorf("output limit: more than %d bytes", r.script.opts.Limits.Output)
	if alone {
		r.refuse(i, "script", fault)
		return
	}
	r.res.Ran = i
	r.limit = &script.LimitError{Limit: "output", Err: &script.Error{Script: r.script.name, Message: fault.Error()}}
}

// settle makes the result whole: the outputs of all sinks and their columns, and
// the dead letters of the events that ran, in order.
func (r *run) settle() error {
	r.out.RemoveRows(r.refusedRows(r.out))
	opts := &r.script.opts
	if !opts.Direct() {
		opts.Share(r.out, r.res.Outputs)
	} else if !opts.Together {
		r.out.To = r.out.To[:0]
	}
	for i := range r.res.Outputs {
		out := &r.res.Outputs[i]
		out.Partition, out.Range = r.in.Partition, r.in.Range.Head(uint64(r.res.Ran))
	}
	if !opts.Value {
		if err := r.columns(); err != nil {
			return err
		}
	}
	end := r.in.Range.First + uint64(r.res.Ran)
	r.res.Dead = slices.DeleteFunc(r.res.Dead, func(d event.Dead) bool { return d.Position >= end })
	script.Sort(r.res.Dead)
	for _, s := range r.state[:r.res.Ran] {
		if s == pending {
			r.res.Dropped++
		}
	}
	return nil
}

// refusedRows are the rows of events that were refused after something of them
// was emitted.
func (r *run) refusedRows(out *event.Output) []int {
	var rows []int
	for row, from := range out.From {
		if r.state[from] == refused {
			rows = append(rows, row)
		}
	}
	return rows
}

// columns fills the columns that sinks ask for, and checks that all that was emitted
// are documents.
func (r *run) columns() error {
	good := true
	for i := range r.res.Outputs {
		out, x := &r.res.Outputs[i], r.extractors[i]
		unasked := x == nil || r.script.opts.Together
		if unasked {
			x, out.Columns = r.checker, &r.none
		}
		err := report.Fit(x.Extract, out, func(of int, number uint32, bad report.Bad) {
			if bad.Column < 0 {
				good = false
				r.refuse(of, "script", fmt.Errorf("what %s made of the event is no document: %s", r.script.plugin.symbol, bad.Reason))
				return
			}
			r.bury(of, r.script.opts.Sinks[i].Name, number, "column", errors.New(bad.Reason))
		})
		if unasked {
			out.Columns = nil
		}
		if err != nil {
			return fmt.Errorf("extract columns: %w", err)
		}
	}
	if !good {
		r.takeBack()
	}
	return nil
}

// takeBack removes what is left of the events that were refused when their columns
// were looked at.
func (r *run) takeBack() {
	for i := range r.res.Outputs {
		r.res.Outputs[i].RemoveRows(r.refusedRows(&r.res.Outputs[i]))
	}
	r.res.Dead = slices.DeleteFunc(r.res.Dead, func(d event.Dead) bool {
		return d.Stage == "column" && r.state[d.Position-r.in.Range.First] == refused
	})
}
