package pipeline

import (
	"context"
	"errors"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
)

// This file refuses a pipeline whose configuration does not fit the state that it has had, before
// anything is taken over.

// checkState compares a listing of the source's partitions, and at the first one also what the
// sinks have of states, with the configuration.
func (p *Pipeline) checkState(ctx context.Context, partitions []string, first bool) error {
	c := p.config.State
	sets := state.KeySets(partitions, p.config.Source.Traits().KeySet)
	if !first {
		if c == nil {
			return nil
		}
		return c.CheckKeySets(p.keySets, sets)
	}
	if err := p.checkFormerHomes(ctx); err != nil || c == nil {
		return err
	}
	return p.sinks[p.config.Home].do(ctx, func() (err error) {
		if p.keySets, err = c.Check(ctx, p.config.Name, sets); err == nil {
			err = c.Mark(ctx, p.keySets, sets)
		}
		return err
	})
}

// checkFormerHomes refuses a pipeline whose state is kept by another sink than its home, or that
// has had a state and has none now.
func (p *Pipeline) checkFormerHomes(ctx context.Context) error {
	for i, s := range p.config.Sinks {
		units := s.Sink.Traits().Units
		if units == nil || p.config.State != nil && i == p.config.Home {
			continue
		}
		err := p.sinks[i].do(ctx, func() error {
			return state.CheckRemoved(ctx, p.config.Name, p.config.State, state.Home{Name: s.Name, Units: units})
		})
		if errors.Is(err, state.ErrUnreadable) && event.IsPermanent(err) {
			p.log.Debug("the sink does not tell whether it has a state of the pipeline", "sink", s.Name, "error", err)
			continue // its user may not read the tables of states, which it needs for none
		}
		if err != nil {
			return err
		}
	}
	if p.config.FormerHome == nil {
		return nil
	}
	return state.CheckRemoved(ctx, p.config.Name, p.config.State, *p.config.FormerHome)
}
