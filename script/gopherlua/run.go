package gopherlua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
)

// A run is one batch on its way through a machine.
type run struct {
	*program
	in      *event.Batch
	res     *event.Result
	machine *machine
	out     *event.Output // of the first sink; the others are copies
	doc     pure.Document
}

// errOutput says that what came of an event does not fit the batch any more.
var errOutput = errors.New("output limit")

// events passes the batch through the script up to the first limit.
func (r *run) events(ctx context.Context) error {
	end := time.Now().Add(r.limits.BatchTime)
	defer func() {
		if r.machine != nil { // a new one could not be made
			r.machine.clock.forget()
		}
	}()
	r.begin(ctx, 0)
	for i := range r.in.Len() {
		if i > 0 && !time.Now().Before(end.Add(r.machine.clock.waited)) {
			return r.batchTime(&script.Error{Script: r.file, Message: "the batch took too long"})
		}
		if err := r.event(ctx, i, end); err != nil {
			return err
		}
		r.res.Ran = i + 1
	}
	return nil
}

// begin puts the machine to work for the batch, of which so much time has been
// spent waiting.
func (r *run) begin(ctx context.Context, waited time.Duration) {
	r.machine.ctx, r.machine.clock.waited = ctx, waited
	r.machine.clock.follow(ctx)
}

func (r *run) batchTime(where *script.Error) error {
	return &script.LimitError{Limit: "batch time", Err: where}
}

// event runs event i. An error is about the batch.
func (r *run) event(ctx context.Context, i int, end time.Time) error {
	if err := r.doc.Index(r.in.Doc(i)); err != nil {
		r.die(i, event.Dead{Stage: "parse", Error: err.Error()})
		return nil
	}
	until := time.Now().Add(r.limits.EventTime)
	end = end.Add(r.machine.clock.waited)
	ofBatch := end.Before(until)
	if ofBatch {
		until = end
	}
	data, rows := len(r.out.Data), len(r.out.Ends)
	r.machine.clock.start(until)
	err := r.machine.event(r, i)
	late := r.machine.clock.stop()
	size := len(r.out.Data) - data
	if err != nil {
		r.cut(data, rows)
	}
	if r.machine.broken && !late {
		if err := r.replace(ctx); err != nil {
			return err
		}
	}
	switch {
	case late:
		return r.stopped(ctx, i, err, ofBatch)
	case err == nil:
		return nil
	case errors.Is(err, errOutput):
		return r.overflown(i, size)
	}
	r.die(i, dead(r.machine.scriptError(err)))
	return nil
}

// stopped settles an event that the clock stopped, unless err is nil: then it
// ended just in time.
func (r *run) stopped(ctx context.Context, i int, err error, ofBatch bool) error {
	fault := r.machine.lateError(err, r.limits, ofBatch)
	if err := r.replace(ctx); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	case ofBatch && i > 0:
		return r.batchTime(fault)
	}
	r.die(i, dead(fault))
	return nil
}

// overflown settles an event whose size bytes are too many for the batch.
func (r *run) overflown(i, size int) error {
	fault := &script.Error{Script: r.file, Message: fmt.Sprintf("output limit: more than %d bytes", r.limits.Output)}
	if size <= r.limits.Output {
		return &script.LimitError{Limit: "output", Err: fault}
	}
	r.die(i, dead(fault))
	return nil
}

// replace throws the machine away: whatever a limit interrupted may be half done.
func (r *run) replace(ctx context.Context) error {
	waited := r.machine.clock.waited
	r.machine.clock.forget()
	r.machine.close()
	m, err := newMachine(context.WithoutCancel(ctx), r.program)
	r.machine = m
	if err == nil {
		r.begin(ctx, waited)
	}
	return err
}

// cut takes back what an event wrote.
func (r *run) cut(data, rows int) {
	r.out.Data, r.out.Ends, r.out.From = r.out.Data[:data], r.out.Ends[:rows], r.out.From[:rows]
}

// endDocument ends the document that was appended to the output.
func (r *run) endDocument(i int) error {
	r.out.Ends = append(r.out.Ends, uint32(len(r.out.Data)))
	r.out.From = append(r.out.From, uint32(i))
	if len(r.out.Data) > r.limits.Output {
		return errOutput
	}
	return nil
}

func dead(fault *script.Error) event.Dead {
	return event.Dead{Stage: "script", Error: fault.Error(), Traceback: fault.Traceback}
}

// die makes a dead letter of event i.
func (r *run) die(i int, d event.Dead) {
	d.Position = r.in.Range.First + uint64(i)
	d.Script = r.name
	d.Original = slices.Clone(r.in.Doc(i))
	r.res.Dead = append(r.res.Dead, d)
}

// A bad row is one that a sink's columns cannot take.
type bad struct {
	row    int
	reason string
}

// finish names the outputs and fills their columns. A row that does not fit the
// columns of one sink is taken out of all, so that mending it doubles nothing.
func (r *run) finish() {
	r.columns()
	for i := range r.res.Outputs {
		out := &r.res.Outputs[i]
		out.Partition, out.Range = r.in.Partition, r.in.Range.Head(uint64(r.res.Ran))
		if i > 0 {
			out.Data = append(out.Data, r.out.Data...)
			out.Ends = append(out.Ends, r.out.Ends...)
			out.From = append(out.From, r.out.From...)
		}
	}
	slices.SortStableFunc(r.res.Dead, func(a, b event.Dead) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Number, b.Number))
	})
}

func (r *run) columns() {
	bads := r.extract()
	if len(bads) == 0 {
		return
	}
	slices.SortStableFunc(bads, func(a, b bad) int { return cmp.Compare(a.row, b.row) })
	bads = slices.CompactFunc(bads, func(a, b bad) bool { return a.row == b.row })
	for _, b := range bads {
		r.dieAsRow(b)
	}
	r.removeRows(bads)
	r.extract()
}

// extract fills the columns of every sink that asks for some.
func (r *run) extract() []bad {
	var bads []bad
	for i, sink := range r.sinks {
		if sink.Columns == nil {
			r.res.Outputs[i].Columns = nil
			continue
		}
		out := event.Output{Data: r.out.Data, Ends: r.out.Ends, Columns: r.res.Outputs[i].Columns}
		if out.Columns == nil {
			out.Columns = &event.Columns{}
		}
		report, _ := r.machine.extractors[i].Extract(out.Data, out.Ends, out.Columns)
		for _, b := range report.Bad {
			bads = append(bads, bad{row: b.Row, reason: b.Reason})
		}
		r.res.Outputs[i].Columns = out.Columns
	}
	return bads
}

func (r *run) dieAsRow(b bad) {
	from := r.out.From[b.row]
	number := uint32(0)
	for row := b.row - 1; row >= 0 && r.out.From[row] == from; row-- {
		number++
	}
	r.die(int(from), event.Dead{Number: number, Stage: "column", Error: b.reason})
}

// removeRows takes rows, which ascend, out of the first output.
func (r *run) removeRows(bads []bad) {
	data, ends, from := r.out.Data, r.out.Ends, r.out.From
	start, rows, kept := uint32(0), 0, uint32(0)
	for row, end := range ends {
		if len(bads) > 0 && bads[0].row == row {
			bads = bads[1:]
		} else {
			kept += uint32(copy(data[kept:], data[start:end]))
			ends[rows], from[rows] = kept, from[row]
			rows++
		}
		start = end
	}
	r.cut(int(kept), rows)
}
