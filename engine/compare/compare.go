// Package compare reports how the results of two versions of a pipeline differ: rows, dropped
// events, dead letters, typed columns, time and memory.
//
// A Comparison runs both versions on each batch, or takes results that are there. Only results whose
// bytes differ are parsed. Memory is bounded, whatever the events are: a Report has a bounded number of
// groups, with a few short examples.
//
// A Comparison has one owner at a time. A Report is a value that nothing changes.
package compare

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/event"
)

// Limits of a batch that a Comparison runs.
const (
	batchEvents = 1000
	batchBytes  = 1 << 20
)

// A Comparison collects what a Report says about the results of two versions.
type Comparison struct {
	versions [2]*version // old and new
	batch    event.Batch
	batches  int
	differ   differ
}

// A Side is one of the two versions.
type Side struct {
	Name   string // how the report calls it
	Script string // name of its code, as errors of the code quote it
	Runner Runner // nil if its results come from elsewhere; see Comparison.AddResults
}

// A Runner runs a version. Package trial has one.
type Runner interface {
	// Run passes a batch through the version, and calls handle with each part of it that ran.
	Run(ctx context.Context, in *event.Batch, handle func(part *event.Batch, res *event.Result) error) error
	// Freeze sets the clock of the version.
	Freeze(at time.Time)
	// Memory returns the bytes of its VMs.
	Memory() int
}

// A Sink is what a sink stores.
type Sink struct {
	Name string
	// Columns are those that the sink stores; nil if it stores documents.
	Columns []event.Column
	// Documents says that a row also keeps the fields that have no column.
	Documents bool
	// ColumnsOnly says that the documents of rows may be empty, and only columns are compared.
	ColumnsOnly bool
}

// A version is one of the two, with what it has done so far.
type version struct {
	runner Runner
	errors errorTexts
	sum    Version
	took   time.Duration
}

// New returns a comparison of two versions of one pipeline with these sinks. Runners keep the documents
// of all rows, unless their sink is ColumnsOnly, and see the same time: that of the call.
func New(old, next Side, sinks []Sink) *Comparison {
	c := &Comparison{}
	now := time.Now()
	for i, side := range [2]Side{old, next} {
		if side.Runner != nil {
			side.Runner.Freeze(now)
		}
		c.versions[i] = &version{runner: side.Runner, errors: newErrorTexts(side.Script), sum: Version{Name: side.Name}}
		c.differ.errors[i] = &c.versions[i].errors
	}
	c.differ.setSinks(sinks)
	c.batch.Partition = "diff"
	return c
}

// Events returns the number of events that have run.
func (c *Comparison) Events() uint64 { return c.differ.compared }

// Different returns the number of events whose results differ.
func (c *Comparison) Different() uint64 { return c.differ.different }

// Add adds a copy of an event. It runs a batch when it has enough events.
func (c *Comparison) Add(ctx context.Context, doc []byte) error {
	c.batch.Append(doc)
	if c.batch.Len() < batchEvents && len(c.batch.Data) < batchBytes {
		return nil
	}
	return c.flush(ctx)
}

// flush runs the events that have been added since the last batch. The versions take turns in
// being the first, which finds the events less often in the cache.
func (c *Comparison) flush(ctx context.Context) error {
	if c.batch.Len() == 0 {
		return nil
	}
	first := c.batch.Range.First
	c.batch.Range.Count = uint64(c.batch.Len())
	err := c.run(ctx, c.batches&1)
	c.batches++
	next := first + uint64(c.batch.Len())
	c.batch.Reset()
	c.batch.Range.First = next
	return err
}

// run runs the batch. Each part of it that one version runs is run by the other, in as many parts
// as that needs.
func (c *Comparison) run(ctx context.Context, leader int) error {
	lead, follow := c.versions[leader], c.versions[1-leader]
	return lead.run(ctx, &c.batch, func(part *event.Batch, leading *event.Result) error {
		done := 0
		all := newCursor(leading)
		return follow.run(ctx, part, func(rest *event.Batch, following *event.Result) error {
			var sides [2]cursor
			sides[leader], sides[1-leader] = all, newCursor(following)
			sides[leader].first = done
			c.differ.compareBatch(rest, &sides)
			all = sides[leader]
			done += rest.Len()
			return nil
		})
	})
}

// AddResults adds results of both versions, old and new, for all events of a batch, and how long each
// took. memory is that of the VMs of the new version.
func (c *Comparison) AddResults(in *event.Batch, results [2]*event.Result, took [2]time.Duration, memory int) {
	var sides [2]cursor
	for i, v := range c.versions {
		sides[i] = newCursor(results[i])
		v.sum.add(results[i])
		v.took += took[i]
	}
	c.versions[1].sum.Memory = max(c.versions[1].sum.Memory, memory)
	c.differ.compareBatch(in, &sides)
}

// run runs a batch, and measures that without the time that handle takes.
func (v *version) run(ctx context.Context, in *event.Batch, handle func(*event.Batch, *event.Result) error) error {
	began := time.Now()
	err := v.runner.Run(ctx, in, func(part *event.Batch, res *event.Result) error {
		v.took += time.Since(began)
		v.sum.add(res)
		err := handle(part, res)
		began = time.Now()
		return err
	})
	v.took += time.Since(began)
	v.sum.Memory = max(v.sum.Memory, v.runner.Memory())
	return err
}

// Report runs the rest of the events and returns what differs.
func (c *Comparison) Report(ctx context.Context) (*Report, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return c.Result(), nil
}

// Result returns what differs between the results so far.
func (c *Comparison) Result() *Report {
	r := &Report{Events: c.Events(), Different: c.differ.different, Groups: c.differ.sortedGroups(), Omitted: c.differ.omitted}
	for i, v := range c.versions {
		v.sum.Seconds = v.took.Seconds()
		r.Versions[i] = v.sum
	}
	return r
}

// A cursor is a result, up to the event that is compared next.
type cursor struct {
	*event.Result
	first int   // event of the result at which the compared part begins
	rows  []int // by sink: its next row
	dead  int   // next dead letter
}

func newCursor(res *event.Result) cursor {
	return cursor{Result: res, rows: make([]int, len(res.Outputs))}
}

// An outcome is what one version made of one event.
type outcome struct {
	result *event.Result
	dead   []event.DeadLetter
	rows   [][2]int // by sink: first row, and the one after the last
}

// next moves past an event of the compared part, and sets out to what came of it.
func (c *cursor) next(number int, position uint64, out *outcome) {
	out.result, out.rows = c.Result, out.rows[:0]
	for i := range c.Outputs {
		o, row := &c.Outputs[i], c.rows[i]
		for c.rows[i] < o.Len() && int(o.From[c.rows[i]]) == c.first+number {
			c.rows[i]++
		}
		out.rows = append(out.rows, [2]int{row, c.rows[i]})
	}
	from := c.dead
	for c.dead < len(c.Dead) && c.Dead[c.dead].Position == position {
		c.dead++
	}
	out.dead = c.Dead[from:c.dead]
}

// failed returns the dead letter of the event as a whole, or nil.
func (o *outcome) failed() *event.DeadLetter {
	if len(o.dead) > 0 && o.dead[0].Sink == "" { // which sorts first
		return &o.dead[0]
	}
	return nil
}

// isDropped reports whether nothing came of the event.
func (o *outcome) isDropped() bool {
	for _, rows := range o.rows {
		if rows[0] < rows[1] {
			return false
		}
	}
	return len(o.dead) == 0
}
