package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/sink"
)

// A settling makes durable everything that came of the part of a batch that
// ran: fresh from the script, or from the outbox.
type settling struct {
	t      *partition
	batch  *event.Batch
	res    *event.Result
	script string // name and version of the one that ran
	stored bool   // it is in the outbox
	// absent has an entry for each sink that there is no output for; empty when
	// there is one for all.
	absent []bool
	begun  bool // a sink may have it
}

// rng is the range of what ran.
func (s *settling) rng() event.Range { return s.batch.Range.Head(uint64(s.res.Ran)) }

// lacks tells whether there is no output for sink i.
func (s *settling) lacks(i int) bool { return len(s.absent) > 0 && s.absent[i] }

// name tells the outputs what they are of.
func (s *settling) name() {
	for i := range s.res.Outputs {
		s.res.Outputs[i].Partition, s.res.Outputs[i].Range = s.t.name, s.rng()
	}
}

func (s *settling) commit(ctx context.Context) error {
	p := s.t.p
	if err := s.keep(ctx); err != nil {
		return err
	}
	p.config.Reached(AfterDeadLetters)
	if err := s.store(ctx); err != nil {
		return err
	}
	for _, i := range p.order {
		if s.lacks(i) {
			continue
		}
		err := s.write(ctx, i)
		if errors.Is(err, sink.ErrFenced) {
			s.withdraw()
		}
		if err != nil {
			return fmt.Errorf("write to sink %s: %w", p.config.Sinks[i].Name, err)
		}
	}
	if s.stored {
		p.config.Outbox.Remove(p.config.Name, s.t.name, s.batch.Range.First)
	}
	s.count()
	return nil
}

// keep makes the dead letters of what ran the only ones of its range.
func (s *settling) keep(ctx context.Context) error {
	p := s.t.p
	err := p.letters.retry(ctx, func() error {
		return p.config.DeadLetters.Replace(p.config.Name, s.t.name, s.rng(), s.res.Dead)
	})
	if err != nil {
		return fmt.Errorf("keep dead letters: %w", err)
	}
	return nil
}

// store puts what goes to several sinks into the outbox.
func (s *settling) store(ctx context.Context) error {
	p := s.t.p
	if p.config.Outbox == nil || len(p.config.Sinks) < 2 && !s.stored {
		return nil
	}
	e := &outbox.Entry{
		Pipeline: p.config.Name, Script: s.script,
		Batch: s.batch.Head(s.res.Ran), Result: *s.res,
	}
	e.Result.Outputs = nil
	for i := range p.config.Sinks {
		if !s.lacks(i) {
			e.Sinks = append(e.Sinks, p.config.Sinks[i].Name)
			e.Result.Outputs = append(e.Result.Outputs, s.res.Outputs[i])
		}
	}
	err := p.outbox.retry(ctx, func() error { return p.config.Outbox.Put(e) })
	if err != nil {
		return fmt.Errorf("store outputs: %w", err)
	}
	s.stored = true
	p.config.Reached(AfterOutbox)
	return nil
}

// write writes the output of sink i, without the rows that the sink refuses.
func (s *settling) write(ctx context.Context, i int) error {
	p, out := s.t.p, &s.res.Outputs[i]
	for {
		p.config.Reached(BeforeWrite)
		attempts := 0
		err := p.sinks[i].retry(ctx, func() error {
			if attempts++; attempts > 1 {
				s.begun = true
			}
			began := time.Now()
			defer func() { p.counters.sinks[i].time.Add(int64(time.Since(began))) }()
			return s.t.writers[i].Write(ctx, out)
		})
		var refused *sink.RowErrors
		if !errors.As(err, &refused) {
			if err == nil {
				s.landed(i)
			}
			return err
		}
		if err := s.refuse(refused, i); err != nil {
			return err
		}
		if err := s.keep(ctx); err != nil {
			return err
		}
		if err := s.store(ctx); err != nil {
			return err
		}
	}
}

// landed notes that a sink has its output.
func (s *settling) landed(i int) {
	s.begun = true
	s.t.p.config.Reached(AfterCommit)
	s.t.p.counters.lags.change(s.t.name, func(l *lag) { l.durable[i] += uint64(s.res.Ran) })
}

// withdraw takes back what was kept for a batch that another worker settles. A
// batch that a sink may have, in part or from before a crash, keeps it.
func (s *settling) withdraw() {
	p := s.t.p
	if s.begun {
		return
	}
	s.t.warn("withdraw dead letters", p.config.DeadLetters.Replace(p.config.Name, s.t.name, s.rng(), nil))
	if s.stored {
		p.config.Outbox.Remove(p.config.Name, s.t.name, s.batch.Range.First)
	}
}

func (s *settling) count() {
	c := &s.t.p.counters
	for i := range s.res.Outputs {
		if !s.lacks(i) {
			c.sinks[i].rows.Add(uint64(s.res.Outputs[i].Len()))
		}
	}
	c.dropped.Add(uint64(s.res.Dropped))
	c.dead.add(s.res.Dead)
	c.settled.Add(uint64(s.res.Ran))
	s.t.p.deaths.report(s.t.p.log, s.t.name, s.res.Dead)
}
