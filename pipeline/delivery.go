package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// This file is the walk of one batch, in order: the reader loop claims it, a lane
// runs the script on it, replaces its dead letters, stores its outputs, writes
// rows and range to each sink, and acknowledges it.

// A claim is a batch that was read from a partition, and the memory in which its
// delivery works. A session reuses its claims.
type claim struct {
	number    uint64 // in the order of reading
	read      time.Time
	batch     event.Batch
	requested []deadletter.Request // by event, in a batch of retries; else empty
	result    event.Result
	unit      *unit // whose state the script changes; nil without one
	// storedRows says that the requests are for rows of events that have changed a state, so that
	// the script does not run.
	storedRows bool
	passed     bool // an event passed the script, while the batch is tried; see limits
	trace      *batchTrace
}

// readBatches is the reader loop of a session. It claims batches ahead of the
// lanes until the feed is exhausted, the partition moves or reading stops.
func (s *session) readBatches(ctx, reading context.Context) error {
	defer close(s.claimed)
	for number := uint64(0); ; number++ {
		c := s.waitForClaim(reading)
		if c == nil {
			return ctx.Err()
		}
		c.number = number
		err := s.claimBatch(reading, c)
		switch {
		case err == nil:
			s.p.config.OnPoint(AfterRead)
			if !s.p.limits.admit(reading, c) {
				return ctx.Err() // it is read again
			}
			s.claimed <- c
		case err == io.EOF:
			return nil
		case errors.Is(err, source.ErrMoved):
			s.stopMoved(err)
			return nil
		case reading.Err() != nil:
			return ctx.Err()
		default:
			return err
		}
	}
}

// waitForClaim waits until the circuit breaker is closed and a claim is free. It
// returns nil if reading ends first.
func (s *session) waitForClaim(reading context.Context) *claim {
	began := time.Now()
	defer func() { s.p.counters.backpressure.Add(int64(time.Since(began))) }()
	s.p.breaker.wait(reading)
	select {
	case c := <-s.free:
		return c
	case <-reading.Done():
		return nil
	}
}

// claimBatch reads the next batch. The source keeps its events until they are
// acknowledged.
func (s *session) claimBatch(ctx context.Context, c *claim) error {
	if len(s.units) > 0 {
		c.unit = s.units[0] // that of the partition; a feed of retries chooses
	}
	if err := s.feed.read(ctx, c); err != nil {
		return err
	}
	b := &c.batch
	c.read = time.Now()
	if s.assignment.timers {
		return nil // they are taken in the turn of the script
	}
	if b.Len() == 0 || b.Range.Count != uint64(b.Len()) {
		return fmt.Errorf("source returned %d events for the positions %s: this is a bug in the source", b.Len(), b.Range)
	}
	s.p.counters.countClaim(s.partition, b, s.feed.lag())
	s.p.config.Tap.OfferBatch(b)
	return s.compareFingerprints(b)
}

// runLane delivers claimed batches, one at a time, until there are no more.
func (s *session) runLane(ctx context.Context) error {
	for c := range s.claimed {
		if err := s.deliverClaim(ctx, c); err != nil {
			return err
		}
		c.shrink(s.p.config.Limits.Bytes)
		s.free <- c
	}
	return nil
}

// deliverClaim runs the script on a batch and delivers the result. If a limit ends a
// run early, the events that ran are delivered as a range of their own, and the
// script runs again on the remaining events.
func (s *session) deliverClaim(ctx context.Context, c *claim) (err error) {
	c.trace = s.startTrace(c)
	defer func() { c.trace.end(c, s.p.config.Name, err) }()
	run := s.newScriptRun(c)
	c.passed = false
	switch {
	case s.assignment.timers:
		return s.deliverTimers(ctx, run, c)
	case c.storedRows:
		return s.deliverStoredRows(ctx, c)
	}
	return s.deliverEvents(ctx, run, c)
}

// deliverEvents is deliverClaim for a batch that was read.
func (s *session) deliverEvents(ctx context.Context, run *scriptRun, c *claim) error {
	if err := s.waitForScript(ctx, c); err != nil {
		return err
	}
	for done := uint64(0); done < c.batch.Range.Count; {
		rest := c.batch.Tail(int(done))
		err := s.deliverRuns(ctx, run, c, &rest)
		limit, isLimit := errors.AsType[*script.LimitError](err)
		if err != nil && !isLimit {
			return err
		}
		done = c.batch.Range.Count
		if isLimit { // a run that reached no event
			d := &delivery{session: s, batch: &rest, result: &c.result, script: run.version}
			if err := d.countLimits(ctx, c, limit, run.next); err != nil {
				return err
			}
			done = run.next - c.batch.Range.First
		}
	}
	return s.endTry(c)
}

func (s *session) newScriptRun(c *claim) *scriptRun {
	return &scriptRun{
		Script: s.p.config.Script, format: s.p.format, limit: script.MaxEvent{Bytes: s.p.config.MaxEvent}, time: &s.p.counters.script,
		session: s, unit: c.unit, rows: s.p.rowSinks(), trace: c.trace,
	}
}

// deliverRuns runs the script on events of a batch, and delivers the result of each run, until all
// have run or a run reached none.
func (s *session) deliverRuns(ctx context.Context, run *scriptRun, c *claim, events *event.Batch) error {
	run.next = events.Range.First
	return script.RunAll(ctx, run, events, &c.result, 0, func(part *event.Batch, limit *script.LimitError) error {
		s.p.config.OnPoint(AfterScript)
		d := &delivery{session: s, batch: part, result: &c.result, script: run.version, read: c.read, trace: c.trace}
		d.run = run.state
		first := run.next
		if len(c.requested) > 0 {
			d.requested = c.requested[first-c.batch.Range.First:]
		}
		run.next = part.Range.End()
		last := run.next == c.batch.Range.End()
		if last {
			s.endScript()
		}
		if err := d.deliver(ctx, c.number, last); err != nil {
			return err
		}
		if !last && !isNoteLimit(limit) {
			s.p.log.Warn("script hit a limit; running it again on the remaining events of the batch",
				"partition", s.partition, "position", run.next, "error", limit)
		}
		return d.countLimits(ctx, c, limit, first)
	})
}

// A scriptRun measures the runs of the script on one batch.
type scriptRun struct {
	script.Script
	version string // name and version of the script in the last run
	next    uint64 // position of the first event that has not run
	format  format.Format
	limit   script.MaxEvent
	time    *atomic.Int64 // in the script, in nanoseconds
	rows    int           // sinks that the script has outputs for

	session  *session
	repeats  repeats
	repeated uint64 // events of the last run that were dropped as repeats
	unit     *unit
	state    *stateRun // of the last run; nil if the script changes no state
	trace    *batchTrace
}

// Run implements script.Script.
func (r *scriptRun) Run(ctx context.Context, in *event.Batch, result *event.Result) error {
	if r.unit != nil {
		return r.runOnState(ctx, in, result)
	}
	return r.run(ctx, in, result)
}

func (r *scriptRun) run(ctx context.Context, in *event.Batch, result *event.Result) error {
	r.version = r.Script.String()
	if len(r.session.p.config.Reads) > 0 {
		done, err := r.session.p.attachReads(ctx, in)
		if err != nil {
			return err
		}
		defer done()
	}
	began, traced := time.Now(), r.trace.start("script")
	withRows := event.Result{Outputs: result.Outputs[:r.rows], Dead: result.Dead}
	err := r.limit.Run(ctx, r.Script, in, &withRows)
	result.Dead, result.Dropped, result.Ran = withRows.Dead, withRows.Dropped, withRows.Ran
	r.time.Add(int64(time.Since(began)))
	traced.setString("perigee.script", r.version)
	traced.setInt("perigee.events", result.Ran)
	traced.setInt("perigee.dropped", result.Dropped)
	traced.setInt("perigee.dead_letters", len(result.Dead))
	traced.end(err)
	r.explain(result.Dead)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*script.LimitError](err); ok {
		return err
	}
	return fmt.Errorf("run script %s: %w", r.version, err)
}

// explain says more about events that are not documents.
func (r *scriptRun) explain(dead []event.DeadLetter) {
	for i := range dead {
		if d := &dead[i]; d.Stage == "parse" && !r.limit.IsLarge(d.Original) {
			r.format.Explain(d)
		}
	}
}

// A delivery makes the result of one run of the script durable, or that of a stored
// entry of the outbox.
type delivery struct {
	*session
	batch     *event.Batch         // the events that ran
	read      time.Time            // when the events were read; zero if that was before a crash
	requested []deadletter.Request // by event of batch; empty if everything is wanted
	result    *event.Result
	script    string // name and version of the script that ran
	stored    bool   // in the outbox
	// withoutOutput says for each sink that the result has no output for it. It is
	// empty if the result has one for every sink.
	withoutOutput []bool
	maybeWritten  bool      // a sink may have committed the range
	storedRows    bool      // no script runs: see storedrows.go
	run           *stateRun // nil if the script has changed no state
	trace         *batchTrace
}

// deliver takes a result through all steps after the script, in the turn of its
// claim. last says that it completes the claim.
func (d *delivery) deliver(ctx context.Context, number uint64, last bool) error {
	d.labelOutputs()
	if !d.storedRows {
		d.selectRequested()
	}
	for i := range d.p.rowSinks() {
		d.p.config.Tap.OfferRows(tap.Output, i, &d.result.Outputs[i])
	}
	var err error
	if d.run == nil {
		err = d.commitInTurn(ctx, number, last)
	} else {
		err = d.commitNote(ctx)
	}
	if err != nil {
		return err
	}
	return d.acknowledge(ctx)
}

// commitInTurn is commit in the turn of the delivery's claim.
func (d *delivery) commitInTurn(ctx context.Context, number uint64, last bool) error {
	if err := d.waitForTurn(ctx, d.sequencer, number); err != nil {
		return err
	}
	if err := d.commit(ctx); err != nil {
		return err
	}
	if last {
		d.sequencer.endTurn()
	}
	return nil
}

// waitForTurn waits until a sequencer lets the delivery commit.
func (d *delivery) waitForTurn(ctx context.Context, s *sequencer, number uint64) error {
	if s == nil {
		return nil
	}
	traced := d.trace.start("wait for turn")
	err := s.waitForTurn(ctx, number)
	traced.end(err)
	return err
}

// commit makes everything that the script made of the events durable. This is
// also where the replay of an outbox entry starts.
func (d *delivery) commit(ctx context.Context) error {
	if err := d.replaceDeadLetters(ctx); err != nil {
		return err
	}
	d.p.config.OnPoint(AfterDeadLetters)
	if err := d.storeOutputs(ctx); err != nil {
		return err
	}
	for _, i := range d.p.writeOrder {
		if d.lacksOutput(i) {
			continue
		}
		err := d.writeSink(ctx, i)
		if errors.Is(err, sink.ErrFenced) {
			d.withdraw()
		}
		if err != nil {
			return fmt.Errorf("write to sink %s: %w", d.p.config.Sinks[i].Name, err)
		}
	}
	d.removeStored()
	d.reportResult()
	return nil
}

// reportResult counts and shows what every sink has now.
func (d *delivery) reportResult() {
	d.p.counters.countDelivery(d)
	if !d.read.IsZero() {
		d.p.counters.deliveries.add(time.Since(d.read))
	}
	d.p.deadLetterLog.report(d.p.log, d.partition, d.result.Dead)
	d.p.config.Tap.OfferDead(d.partition, d.result.Dead)
}

// replaceDeadLetters makes the dead letters of this run the only ones of its range.
func (d *delivery) replaceDeadLetters(ctx context.Context) error {
	traced := d.trace.start("dead letters")
	err := d.p.deadLetters.do(ctx, func() error {
		return d.p.config.DeadLetters.Replace(d.p.config.Name, d.partition, d.batch.Range, d.result.Dead)
	})
	traced.end(err)
	if err != nil {
		return fmt.Errorf("store dead letters: %w", err)
	}
	return nil
}

// storeOutputs stores the outputs in the outbox if several sinks get them, so that
// after a crash between two sinks the script does not run again.
func (d *delivery) storeOutputs(ctx context.Context) error {
	p := d.p
	if p.config.Outbox == nil || p.units != nil && !d.stored || len(p.config.Sinks) < 2 && !d.stored {
		return nil
	}
	e := d.outboxEntry(func(i int) bool { return !d.lacksOutput(i) })
	traced := d.trace.start("outbox")
	err := p.outbox.do(ctx, func() error { return p.config.Outbox.Put(e) })
	traced.end(err)
	if err != nil {
		return fmt.Errorf("store outputs: %w", err)
	}
	d.stored = true
	p.config.OnPoint(AfterOutbox)
	return nil
}

// outboxEntry returns the outputs for the sinks that has selects, with what the script made
// besides them.
func (d *delivery) outboxEntry(has func(sink int) bool) *outbox.Entry {
	e := &outbox.Entry{
		Pipeline: d.p.config.Name, Script: d.script,
		Batch: *d.batch, Result: *d.result,
	}
	e.Result.Outputs = nil
	for i := range d.p.config.Sinks {
		if has(i) {
			e.Sinks = append(e.Sinks, d.p.config.Sinks[i].Name)
			e.Result.Outputs = append(e.Result.Outputs, d.result.Outputs[i])
		}
	}
	return e
}

// writeSink writes rows and range to sink i in one transaction. If the sink rejects
// rows, it has committed nothing: the rows become dead letters, durably, before
// the others are written.
func (d *delivery) writeSink(ctx context.Context, i int) error {
	for {
		d.p.config.OnPoint(BeforeWrite)
		err := d.tryWrite(ctx, i, func() error { return d.writers[i].Write(ctx, &d.result.Outputs[i]) })
		rejected, ok := errors.AsType[*sink.RowErrors](err)
		if !ok {
			return err
		}
		if err := d.rejectRows(rejected, i); err != nil {
			return err
		}
		if err := d.replaceDeadLetters(ctx); err != nil {
			return err
		}
		if err := d.storeOutputs(ctx); err != nil {
			return err
		}
	}
}

// tryWrite calls write, for sink i, until it succeeds or fails permanently.
func (d *delivery) tryWrite(ctx context.Context, i int, write func() error) error {
	attempts, traced := 0, d.trace.startAt("sink", d.p.config.Sinks[i].Name)
	err := d.p.sinks[i].do(ctx, func() error {
		if attempts++; attempts > 1 {
			d.maybeWritten = true
		}
		began := time.Now()
		err := write()
		took := time.Since(began)
		d.p.counters.sinks[i].time.Add(int64(took))
		if err == nil {
			d.p.counters.sinks[i].commits.add(took)
		}
		traced.addFailure(err)
		return err
	})
	traced.setInt("perigee.rows", d.result.Outputs[i].Len())
	traced.setInt("perigee.attempts", attempts)
	traced.end(err)
	if err == nil {
		d.maybeWritten = true
		d.p.config.OnPoint(AfterCommit)
		d.p.counters.countWritten(d.partition, i, d.result.Ran)
		d.p.config.Tap.OfferRows(tap.Sink, i, &d.result.Outputs[i])
	}
	return err
}

// removeStored removes the outputs from the outbox: every sink has them.
func (d *delivery) removeStored() {
	if d.stored {
		d.p.config.Outbox.Remove(d.p.config.Name, d.partition, d.batch.Range.First)
	}
}

// withdraw deletes the dead letters and stored outputs of a delivery that another
// worker makes instead. It keeps them if a sink may have the range, because they
// belong to that commit then.
func (d *delivery) withdraw() {
	if d.maybeWritten {
		return
	}
	d.warn("withdraw dead letters", d.p.config.DeadLetters.Replace(d.p.config.Name, d.partition, d.batch.Range, nil))
	d.removeStored()
}

// acknowledge tells dead letters and source that every sink has the range. A
// source that moved does not need to know: the reader loop stops, and the
// batches that were already read are delivered.
func (d *delivery) acknowledge(ctx context.Context) (err error) {
	traced := d.trace.start("ack")
	defer func() { traced.end(err) }()
	d.p.config.OnPoint(BeforeAck)
	if err := d.markCommitted(ctx, d.batch.Range); err != nil {
		return err
	}
	err = d.feed.acknowledge(ctx, d.batch.Range)
	switch {
	case errors.Is(err, source.ErrMoved):
		d.stopMoved(err)
	case err != nil:
		return err
	}
	d.p.config.OnPoint(AfterAck)
	return nil
}

// lacksOutput reports whether the result has no output for sink i.
func (d *delivery) lacksOutput(i int) bool { return len(d.withoutOutput) > 0 && d.withoutOutput[i] }

// labelOutputs sets partition and range of the outputs.
func (d *delivery) labelOutputs() {
	for i := range d.result.Outputs {
		d.result.Outputs[i].SetRange(d.batch, d.batch.Len())
	}
}

// shrink releases memory that a batch far beyond the limit made grow.
func (c *claim) shrink(limit int) {
	keep := 4 * max(limit, 256<<10)
	if cap(c.batch.Data) > keep {
		c.batch.Data = nil
	}
	for i := range c.result.Outputs {
		if out := &c.result.Outputs[i]; cap(out.Data) > keep {
			*out = event.Output{}
		}
	}
}
