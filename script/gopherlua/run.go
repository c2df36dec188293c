package gopherlua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/script"
)

// A run is one batch on its way through a machine.
type run struct {
	*program
	in      *event.Batch
	res     *event.Result
	machine *machine
	out     *event.Output // all that main returned
	to      uint64        // the sinks of what is being appended to out; 0: main did not say
	doc     pure.Document
}

// errOutput says that what came of an event does not fit the batch any more.
var errOutput = errors.New("output limit")

// events passes the batch through the script up to the first limit.
func (r *run) events(ctx context.Context) error {
	end := time.Now().Add(r.opts.Limits.BatchTime)
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
	until := time.Now().Add(r.opts.Limits.EventTime)
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
	fault := r.machine.lateError(err, r.opts.Limits, ofBatch)
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
	fault := &script.Error{Script: r.file, Message: fmt.Sprintf("output limit: more than %d bytes", r.opts.Limits.Output)}
	if size <= r.opts.Limits.Output {
		return &script.LimitError{Limit: "output", Err: fault}
	}
	r.die(i, dead(fault))
	return nil
}

// replace throws the machine away: whatever a limit interrupted may be half done.
func (r *run) replace(ctx context.Context) error {
	waited := r.machine.clock.waited
	r.machine.clock.forget()
	r.machine.broken = true
	r.machine.member.Release()
	m, err := r.take(context.WithoutCancel(ctx))
	r.machine = m
	if err == nil {
		r.begin(ctx, waited)
	}
	return err
}

// cut takes back what an event wrote.
func (r *run) cut(data, rows int) {
	script.Cut(r.out, data, rows)
}

// endDocument ends the document that was appended to the output.
func (r *run) endDocument(i int) error {
	script.End(r.out, i, r.to)
	if len(r.out.Data) > r.opts.Limits.Output {
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

// output is where what main returns goes: to the first output, where that gets all.
func (m *machine) output(res *event.Result) *event.Output {
	if m.opts.Direct() {
		return &res.Outputs[0]
	}
	m.sent.Reset()
	return &m.sent
}

// finish shares out what main returned, names the outputs and fills their columns.
func (r *run) finish() error {
	if !r.opts.Direct() {
		r.opts.Share(r.out, r.res.Outputs)
	} else if !r.opts.Together {
		r.out.To = r.out.To[:0]
	}
	for i := range r.res.Outputs {
		out := &r.res.Outputs[i]
		out.Partition, out.Range = r.in.Partition, r.in.Range.Head(uint64(r.res.Ran))
		if r.opts.Together || r.opts.Sinks[i].Columns == nil {
			out.Columns = nil
			continue
		}
		if err := r.columns(i); err != nil {
			return err
		}
	}
	script.Sort(r.res.Dead)
	return nil
}

// columns fills the columns of sink i. A row that does not fit leaves that sink.
func (r *run) columns(i int) error {
	err := report.Fit(r.machine.extractors[i].Extract, &r.res.Outputs[i], func(of int, number uint32, bad report.Bad) {
		r.die(of, event.Dead{Sink: r.opts.Sinks[i].Name, Number: number, Stage: "column", Error: bad.Reason})
	})
	if err != nil {
		return fmt.Errorf("extract columns: %w", err)
	}
	return nil
}
