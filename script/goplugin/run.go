package goplugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/script"
)

// A run is one batch on its way through a plugin.
type run struct {
	*workshop
	script *loadedScript
	ctx    context.Context
	in     *event.Batch
	res    *event.Result
	out    *event.Output // of the first sink; the others get copies
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
	r.bury(i, 0, stage, err)
}

func (r *run) bury(i int, number uint32, stage string, err error) {
	d := event.Dead{
		Position: r.in.Range.First + uint64(i), Number: number, Stage: stage, Error: err.Error(),
		Script: r.script.name, Original: bytes.Clone(r.in.Doc(i)),
	}
	if fault, ok := err.(*script.Error); ok {
		d.Error, d.Traceback = fault.Message, fault.Traceback
	}
	r.res.Dead = append(r.res.Dead, d)
}

// endDocument ends the document of event i that was appended to the output.
func (r *run) endDocument(i int) {
	r.out.Ends = append(r.out.Ends, uint32(len(r.out.Data)))
	r.out.From = append(r.out.From, uint32(i))
	r.state[i] = emitted
	if len(r.out.Data) > r.script.limits.Output {
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
	alone := len(r.out.Data)-first > r.script.limits.Output
	r.out.Data, r.out.Ends, r.out.From = r.out.Data[:first], r.out.Ends[:rows], r.out.From[:rows]
	fault := fmt.Errorf("output limit: more than %d bytes", r.script.limits.Output)
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
	r.out.Remove(r.refusedRows())
	for i := range r.res.Outputs {
		out := &r.res.Outputs[i]
		out.Partition, out.Range = r.in.Partition, r.in.Range.Head(uint64(r.res.Ran))
		if i > 0 {
			out.Data = append(out.Data, r.out.Data...)
			out.Ends = append(out.Ends, r.out.Ends...)
			out.From = append(out.From, r.out.From...)
		}
	}
	if !r.script.value {
		if err := r.columns(); err != nil {
			return err
		}
	}
	end := r.in.Range.First + uint64(r.res.Ran)
	r.res.Dead = slices.DeleteFunc(r.res.Dead, func(d event.Dead) bool { return d.Position >= end })
	slices.SortStableFunc(r.res.Dead, func(a, b event.Dead) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Number, b.Number))
	})
	for _, s := range r.state[:r.res.Ran] {
		if s == pending {
			r.res.Dropped++
		}
	}
	return nil
}

// refusedRows are the rows of events that were refused after something of them
// was emitted.
func (r *run) refusedRows() []int {
	var rows []int
	for row, from := range r.out.From {
		if r.state[from] == refused {
			rows = append(rows, row)
		}
	}
	return rows
}

// columns fills the columns that sinks ask for. A row that does not fit for one
// sink is left out for all, so that running it again doubles nothing.
func (r *run) columns() error {
	misfits := map[int]document.Bad{}
	for i, x := range r.extractors {
		out := &r.res.Outputs[i]
		columns := &r.none
		if x == nil {
			x, out.Columns = r.checker, nil
		} else {
			if out.Columns == nil {
				out.Columns = new(event.Columns)
			}
			columns = out.Columns
		}
		report, err := x.Extract(out.Data, out.Ends, columns)
		if err != nil {
			return fmt.Errorf("extract columns: %w", err)
		}
		for _, bad := range report.Bad {
			if _, found := misfits[bad.Row]; !found {
				misfits[bad.Row] = bad
			}
		}
	}
	r.leaveOut(misfits)
	return nil
}

// leaveOut makes dead letters of rows and removes them from all outputs.
func (r *run) leaveOut(misfits map[int]document.Bad) {
	rows := slices.Sorted(maps.Keys(misfits))
	for _, row := range rows {
		first := row
		for first > 0 && r.out.From[first-1] == r.out.From[row] {
			first--
		}
		bad := misfits[row]
		stage, err := "column", errors.New(bad.Reason)
		if bad.Column < 0 {
			stage, err = "script", fmt.Errorf("what %s made of the event is no document: %w", r.script.plugin.symbol, err)
		}
		r.bury(int(r.out.From[row]), uint32(row-first), stage, err)
	}
	for i := range r.res.Outputs {
		r.res.Outputs[i].Remove(rows)
	}
}
