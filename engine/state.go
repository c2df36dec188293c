package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
)

// stateFolder is the folder of states in the data folder.
const stateFolder = "state"

// changelogName is the name of the sink that is the home of a state where no other can be.
const changelogName = "changelog"

// checkState refuses a state that this build, or its home, cannot keep.
func (p *Pipeline) checkState() error {
	s := p.Config.State
	if s == nil {
		return nil
	}
	if nodedb.Version() == "" {
		return s.At(fmt.Errorf("pipeline %s has a state: %w", p.Config.Name, nodedb.ErrUnavailable), "use a build with cgo")
	}
	if home := p.home(); home >= 0 && p.Sinks[home].Sink.Traits().Units == nil {
		return s.At(fmt.Errorf("sink %s cannot be the home of a state, since it does not commit rows and state together", s.Home),
			"choose a MySQL, PostgreSQL or Redis sink; or remove home, so that a changelog in the data folder keeps the state, if no other sink can")
	}
	return nil
}

// home returns the index of the sink that the configuration chooses as the home of the state, or
// else of the first that can be it, or -1.
func (p *Pipeline) home() int {
	for i, s := range p.Sinks {
		if s.Config.Name == p.Config.State.Home || p.Config.State.Home == "" && s.Sink.Traits().Units != nil {
			return i
		}
	}
	return -1
}

// stateConfig describes the state of a pipeline, with the home that it has.
func (p *Pipeline) stateConfig(data string, home sink.UnitStore, homeName string, log *slog.Logger) *state.Config {
	s := p.Config.State
	return &state.Config{
		Name: s.Name, Shared: s.Scope == config.ScopePipeline, Home: home, HomeName: homeName,
		Folder: filepath.Join(data, stateFolder, s.Name), Log: log.With("pipeline", p.Config.Name),
	}
}

// describeState is stateConfig for commands without an engine.
func (a *Assembly) describeState(p *Pipeline) *state.Config {
	if home := p.home(); home >= 0 {
		return p.stateConfig(a.Config.Data, p.Sinks[home].Sink.Traits().Units, p.Sinks[home].Config.Name, a.opts.Log)
	}
	return p.stateConfig(a.Config.Data, a.closedChangelog(p), changelogName, a.opts.Log)
}

// closedChangelog returns the changelog of a pipeline while no engine runs.
func (a *Assembly) closedChangelog(p *Pipeline) *closedChangelog {
	return &closedChangelog{a.Config.Data, p.Config.Name}
}

// A closedChangelog is the changelog while no engine runs, open only during a call. It can be
// looked at and set to other positions, and no pipeline can write to it.
type closedChangelog struct{ data, pipeline string }

// use calls f with the traits of the changelog, unless there is none.
func (c *closedChangelog) use(f func(sink.Traits) error) error {
	if !changelog.Exists(c.data) {
		return nil
	}
	store, err := changelog.Open(c.data)
	if err != nil {
		return err
	}
	return errors.Join(f(store.Sink(c.pipeline, nil).Traits()), store.Close())
}

// Units implements sink.UnitStore.
func (c *closedChangelog) Units(ctx context.Context) (units map[string]sink.UnitStatus, err error) {
	err = c.use(func(t sink.Traits) (err error) {
		units, err = t.Units.Units(ctx)
		return err
	})
	return units, err
}

// Positions implements sink.PositionStore.
func (c *closedChangelog) Positions(ctx context.Context) (positions map[string]event.Ranges, err error) {
	err = c.use(func(t sink.Traits) (err error) {
		positions, err = t.Positions.Positions(ctx)
		return err
	})
	return positions, err
}

// SetPosition implements sink.PositionStore.
func (c *closedChangelog) SetPosition(ctx context.Context, partition string, next uint64) error {
	return c.use(func(t sink.Traits) error { return t.Positions.SetPosition(ctx, partition, next) })
}

// Traits implements sink.Sink.
func (c *closedChangelog) Traits() sink.Traits { return sink.Traits{Units: c, Positions: c} }

var errClosedChangelog = errors.New("only a running engine writes to the changelog")

// OpenUnit implements sink.UnitStore.
func (c *closedChangelog) OpenUnit(context.Context, string) (sink.Unit, error) {
	return nil, errClosedChangelog
}

// Open implements sink.Sink.
func (c *closedChangelog) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	return nil, nil, errClosedChangelog
}

// Close implements sink.Sink.
func (c *closedChangelog) Close() error { return nil }

// keepState adds the state of a pipeline to its settings. Where no sink can be its home, the
// changelog in the data folder is.
func (e *Engine) keepState(p *Pipeline, settings *pipeline.Config) error {
	if p.Config.State == nil {
		return nil
	}
	log := e.log.With("pipeline", p.Config.Name)
	settings.Home = p.home()
	if settings.Home < 0 {
		if err := e.openChangelog(); err != nil {
			return err
		}
		settings.Home = len(settings.Sinks)
		p.changelog = e.changelog.Sink(p.Config.Name, log)
		settings.Sinks = append(settings.Sinks, pipeline.Sink{
			Name: changelogName, Sink: p.changelog, Guarantee: sink.ExactlyOnce, WithoutRows: true,
		})
	}
	home := settings.Sinks[settings.Home]
	settings.State = p.stateConfig(e.data, home.Sink.Traits().Units, home.Name, e.log)
	settings.State.FlushAge = e.opts.StateFlushAge
	p.state = settings.State
	return nil
}

// openChangelog opens the changelog in the data folder, if it is not open.
func (e *Engine) openChangelog() (err error) {
	if e.changelog != nil {
		return nil
	}
	if e.changelog, err = changelog.Open(e.data); err != nil {
		return err
	}
	e.closers = append(e.closers, e.changelog)
	return nil
}
