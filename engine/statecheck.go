package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink/changelog"
)

// HomeOf returns the name of the sink that is the home of a pipeline's state; isChangelog says that
// it is the changelog in the data folder. It is "" for a pipeline without a state.
func (a *Assembly) HomeOf(p *Pipeline) (name string, isChangelog bool) {
	if p.Config.State == nil {
		return "", false
	}
	if home := p.home(); home >= 0 {
		return p.Sinks[home].Config.Name, false
	}
	return changelogName, true
}

// CheckStates compares the states in the changelog of the data folder, which no engine may have
// open, with the configuration. It returns faults with their places.
func (a *Assembly) CheckStates(ctx context.Context) error {
	if !changelog.Exists(a.Config.Data) {
		return nil
	}
	var faults []error
	for _, p := range a.Pipelines {
		err := a.checkStateAt(ctx, p, state.Home{Name: changelogName, Units: a.closedChangelog(p)})
		if !event.IsPermanent(err) {
			continue // the file cannot be read now
		}
		err = fmt.Errorf("pipeline %s: %w", p.Config.Name, err)
		if s := p.Config.State; s != nil {
			faults = append(faults, s.At(err, event.HintOf(err)))
		} else {
			faults = append(faults, p.Config.Source.At(err, event.HintOf(err)))
		}
	}
	return config.Join(faults...)
}

// checkStateAt compares what a home has of a pipeline's states with the configuration.
func (a *Assembly) checkStateAt(ctx context.Context, p *Pipeline, home state.Home) error {
	name, _ := a.HomeOf(p)
	if name != home.Name {
		var c *state.Config
		if name != "" {
			c = a.describeState(p)
		}
		if err := state.CheckRemoved(ctx, p.Config.Name, c, home); !errors.Is(err, state.ErrUnreadable) {
			return err
		}
		return nil // the run may go on as well
	}
	c := a.describeState(p)
	var sets map[string]int
	traits := p.Source.Traits()
	if traits.KeySet != nil && home.Name != changelogName {
		partitions, err := p.Source.Partitions(ctx)
		if err != nil {
			return nil // the check of the source says so
		}
		sets = state.KeySets(partitions, traits.KeySet)
	}
	_, err := c.Check(ctx, p.Config.Name, sets)
	return err
}
