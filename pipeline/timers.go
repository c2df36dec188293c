package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
)

// A timerFeed waits until a timer of a unit is due. The lane looks for the timers that are due in
// the turn of the script, since scripts before it may set or cancel some.
type timerFeed struct{ unit *unit }

func (f *timerFeed) read(ctx context.Context, c *claim) error {
	c.batch.Reset()
	return f.unit.timers.wait(ctx)
}

// acknowledge does nothing: the note removes the timers.
func (f *timerFeed) acknowledge(context.Context, event.Range) error { return nil }

func (f *timerFeed) lag() uint64 { return 0 }

func (f *timerFeed) close(context.Context) error { return nil }

// deliverTimers runs the script on the timers that are due, as many as a batch may have, and
// delivers the result. If a limit ends the run early, the others stay due.
func (s *session) deliverTimers(ctx context.Context, run *scriptRun, c *claim) error {
	began, err := c.unit.begin(ctx)
	if err != nil {
		return err
	}
	due, err := began.state.DueTimers(ctx, s.p.config.Limits.Events)
	if err != nil {
		return err
	}
	if len(due) == 0 {
		at, found, err := began.state.NextTimer(ctx)
		c.unit.timers.set(at, found)
		return errors.Join(err, began.discard())
	}
	b := &c.batch
	b.Range.First = s.nextTimer
	if err := state.AppendTimers(b, due); err != nil {
		return err
	}
	run.next = b.Range.First
	err = run.runIn(ctx, began, b, &c.result, func() error {
		for _, dead := range c.result.Dead { // what failed was undone, with the removal of its timer
			if err := began.state.RemoveTimer(due[dead.Position-b.Range.First]); err != nil {
				return err
			}
		}
		return nil
	})
	limit, isLimit := errors.AsType[*script.LimitError](err)
	if err != nil && !isLimit {
		return err
	}
	s.p.config.OnPoint(AfterScript)
	part := b.Head(c.result.Ran)
	d := &delivery{session: s, batch: &part, result: &c.result, script: run.version, run: run.state, trace: c.trace}
	if part.Len() > 0 {
		s.nextTimer = part.Range.End()
		s.p.units.timers.Add(part.Range.Count)
		if err := d.deliver(ctx, c.number, true); err != nil {
			return err
		}
	}
	if err := d.countLimits(ctx, c, limit, b.Range.First); err != nil {
		return err
	}
	return s.endTry(c)
}

// A retryGroup is what the letters of one batch of retries have in common in a pipeline with
// state.
type retryGroup struct {
	unit   string
	timers bool
	// rows says that the letters are for rows of events whose changes are committed, and documents
	// that they have the documents of these rows. No script runs, so that they belong to no unit.
	rows, documents bool
}

func (p *Pipeline) retryGroup(l *deadletter.Letter) any {
	if l.Sink != "" {
		return retryGroup{rows: true, documents: len(l.Document) > 0}
	}
	unit, timers := IsTimers(l.Partition)
	if !timers {
		unit = p.unitOfPartition(l.Partition)
	}
	return retryGroup{unit: unit, timers: timers}
}

// unitOfPartition returns the unit of a partition of the source.
func (p *Pipeline) unitOfPartition(partition string) string {
	if of := p.config.Source.Traits().Unit; of != nil {
		partition = of(partition)
	}
	return p.config.State.UnitOf(partition)
}

// unitOf returns the unit that an assignment's session uses from its begin.
func (p *Pipeline) unitOf(a *assignment) (unit string, ok bool) {
	if p.units == nil || a.retries || a.orphan {
		return "", false
	}
	if a.timers {
		return IsTimers(a.partition)
	}
	return p.unitOfPartition(a.partition), true
}

// chooseUnit says in which unit the script runs on a batch of retries, if it runs. If units are shared by
// lease, it waits until this worker has it, and if the unit was refused, until it is not.
func (f *retryFeed) chooseUnit(ctx context.Context, c *claim) (err error) {
	group := f.reader.Group().(retryGroup)
	c.batch.Timers, c.batch.Retry, c.storedRows = group.timers, true, group.rows
	if group.rows {
		c.unit = nil
		return nil
	}
	units := f.s.p.units
	for told := false; f.s.p.leases != nil && !units.isOpen(group.unit) || units.isWaiting(group.unit); told = true {
		if !told {
			f.s.p.log.Info("retries of dead letters wait for the worker that has their state, or until this one gets it", "unit", group.unit)
		}
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
	c.unit, err = f.s.useUnit(ctx, group.unit)
	return err
}

// homeUnits returns the names of the units that the home has of the pipeline's state.
func (p *Pipeline) homeUnits(ctx context.Context) (names []string, err error) {
	err = p.sinks[p.config.Home].do(ctx, func() (err error) {
		units, err := p.config.State.Units(ctx)
		names = slices.Collect(maps.Keys(units))
		return err
	})
	return names, err
}
