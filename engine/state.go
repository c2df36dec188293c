package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/state/archive"
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
	if len(p.Config.Reads) > 0 && nodedb.Version() == "" {
		return p.Config.AtReads(fmt.Errorf("pipeline %s reads a state: %w", p.Config.Name, nodedb.ErrUnavailable), "use a build with cgo")
	}
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
	if s.Standby > 0 && p.home() < 0 {
		return s.At(fmt.Errorf("standby of pipeline %s needs a home that other workers reach, and its state is kept in the data folder", p.Config.Name),
			"add a MySQL, PostgreSQL or Redis sink, or remove standby")
	}
	return nil
}

// keptForFollowers is how long notes stay in the home of a state with followers, so that a worker can
// be restarted and goes on to follow.
const keptForFollowers = 2 * time.Minute

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
	described := &state.Config{
		Name: s.Name, Version: s.Version, Shared: s.Scope == config.ScopePipeline, EventTime: eventTimeOf(s), Home: home, HomeName: homeName,
		Folder: stateFolderOf(data, s.Name, s.Version), Archive: p.archive, Keep: s.Archive.Keep, Log: log.With("pipeline", p.Config.Name), Standby: s.Standby,
	}
	if s.Standby > 0 || s.IsRead && p.home() >= 0 {
		described.KeepNotes = keptForFollowers
	}
	return described
}

// eventTimeOf returns the settings of a clock that follows the times of events; nil if that of a
// state does not.
func eventTimeOf(s *config.State) *state.EventTime {
	if s == nil || s.Time != config.TimeEvent {
		return nil
	}
	unit, _ := event.ParseUnit(cmp.Or(s.Unit, event.Seconds.String())) // checked by package config
	idle := s.Idle
	if idle == 0 {
		idle = config.DefaultIdle
	}
	return &state.EventTime{Field: strings.Split(s.Field, "."), Unit: unit, Lateness: s.Lateness, Idle: idle}
}

// stateFolderOf returns the folder of the copies of a state in one version.
func stateFolderOf(data, name string, version int) string {
	if version > 1 {
		name += "@" + strconv.Itoa(version)
	}
	return filepath.Join(data, stateFolder, name)
}

// createArchive makes the client of the place in which the state of a pipeline is archived. It
// connects to nothing.
func (a *Assembly) createArchive(p *Pipeline) (err error) {
	s, c := p.Config.State, a.Config
	if s == nil || s.Archive.To == "" {
		return nil
	}
	p.archive, err = archive.Locate(s.Archive.To, c.Folder, a.s3Settings(), a.opts.Lookup)
	if err != nil {
		return s.At(fmt.Errorf("archive of state %s: %w", s.Name, err), "use a folder, or s3://BUCKET/PREFIX with the service of the key s3")
	}
	return nil
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
	return &closedChangelog{a, p.Config.Name}
}

// A closedChangelog is the changelog while no engine runs. Looking at it opens the file for a
// moment; what takes over units or partitions keeps it open until the Assembly is closed.
type closedChangelog struct {
	assembly *Assembly
	pipeline string
}

// use calls f with the changelog, unless there is none.
func (c *closedChangelog) use(f func(*changelog.Sink) error) error {
	a := c.assembly
	if a.changelog != nil {
		return f(a.changelog.Sink(c.pipeline, nil))
	}
	if !changelog.Exists(a.Config.Data) {
		return nil
	}
	store, err := changelog.Open(a.Config.Data)
	if err != nil {
		return err
	}
	return errors.Join(f(store.Sink(c.pipeline, nil)), store.Close())
}

// keepOpen opens the changelog, or creates it, for the rest of the Assembly's life.
func (c *closedChangelog) keepOpen() (_ *changelog.Sink, err error) {
	a := c.assembly
	if a.changelog == nil {
		if a.changelog, err = changelog.Open(a.Config.Data); err != nil {
			return nil, err
		}
	}
	if a.changelogSinks[c.pipeline] == nil {
		a.changelogSinks[c.pipeline] = a.changelog.Sink(c.pipeline, nil)
	}
	return a.changelogSinks[c.pipeline], nil
}

// Units implements sink.UnitStore.
func (c *closedChangelog) Units(ctx context.Context) (units map[string]sink.UnitStatus, err error) {
	err = c.use(func(s *changelog.Sink) (err error) {
		units, err = s.Units(ctx)
		return err
	})
	return units, err
}

// LastNotes implements sink.UnitStore.
func (c *closedChangelog) LastNotes(ctx context.Context) (last map[string]uint64, err error) {
	err = c.use(func(s *changelog.Sink) (err error) {
		last, err = s.LastNotes(ctx)
		return err
	})
	return last, err
}

// ReadNotes implements sink.UnitStore.
func (c *closedChangelog) ReadNotes(ctx context.Context, name string, from uint64, visit func(*sink.Note) error) error {
	return c.use(func(s *changelog.Sink) error { return s.ReadNotes(ctx, name, from, visit) })
}

// Positions implements sink.PositionStore.
func (c *closedChangelog) Positions(ctx context.Context) (positions map[string]event.Ranges, err error) {
	err = c.use(func(s *changelog.Sink) (err error) {
		positions, err = s.Positions(ctx)
		return err
	})
	return positions, err
}

// SetPosition implements sink.PositionStore.
func (c *closedChangelog) SetPosition(ctx context.Context, partition string, next uint64) error {
	return c.use(func(s *changelog.Sink) error { return s.SetPosition(ctx, partition, next) })
}

// Traits implements sink.Sink.
func (c *closedChangelog) Traits() sink.Traits { return sink.Traits{Units: c, Positions: c} }

// OpenUnit implements sink.UnitStore.
func (c *closedChangelog) OpenUnit(ctx context.Context, name string) (sink.Unit, error) {
	s, err := c.keepOpen()
	if err != nil {
		return nil, err
	}
	return s.OpenUnit(ctx, name)
}

// Open implements sink.Sink.
func (c *closedChangelog) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	s, err := c.keepOpen()
	if err != nil {
		return nil, nil, err
	}
	return s.Open(ctx, partition)
}

// Close implements sink.Sink.
func (c *closedChangelog) Close() error { return nil }

// keepState adds the state of a pipeline to its settings. Where no sink can be its home, the
// changelog in the data folder is.
func (e *Engine) keepState(p *Pipeline, settings *pipeline.Config) error {
	log := e.log.With("pipeline", p.Config.Name)
	isHome := p.Config.State != nil && p.home() < 0
	if isHome || changelog.Exists(e.data) {
		if err := e.openChangelog(); err != nil {
			return err
		}
		if !isHome {
			settings.FormerHome = &state.Home{Name: changelogName, Units: e.changelog.Sink(p.Config.Name, log)}
		}
	}
	if p.Config.State == nil {
		return nil
	}
	settings.Home = p.home()
	if settings.Home < 0 {
		settings.Home = len(settings.Sinks)
		p.changelog = e.changelog.Sink(p.Config.Name, log)
		settings.Sinks = append(settings.Sinks, pipeline.Sink{
			Name: changelogName, Sink: p.changelog, Guarantee: sink.ExactlyOnce, WithoutRows: true,
		})
	}
	home := settings.Sinks[settings.Home]
	settings.State = p.stateConfig(e.data, home.Sink.Traits().Units, home.Name, e.log)
	settings.State.Budget = e.budget
	if age := e.opts.StateFlushAge; age > 0 {
		settings.State.FlushAge, settings.State.ArchiveAge, settings.State.SnapshotBytes = age, 2*age, testSnapshotBytes
	}
	p.state = settings.State
	return nil
}

// readsOf describes the states of other pipelines that a pipeline reads.
func (e *Engine) readsOf(p *Pipeline) (reads []pipeline.Read) {
	for _, name := range p.Config.Reads {
		reads = append(reads, pipeline.Read{State: name, Open: func() (*pipeline.StateReader, error) { return e.openReader(name) }})
	}
	return reads
}

// openReader opens a reader of the state of a pipeline.
func (e *Engine) openReader(name string) (*pipeline.StateReader, error) {
	e.mu.Lock()
	i := slices.IndexFunc(e.runners, func(r *runner) bool { return r.parts.Config.State != nil && r.parts.Config.State.Name == name })
	if i < 0 {
		e.mu.Unlock()
		return nil, fmt.Errorf("the pipeline of state %s is not running", name)
	}
	of := e.runners[i].pipeline
	e.mu.Unlock()
	return of.OpenReader()
}

// testSnapshotBytes is the least size of segments that a snapshot replaces in tests.
const testSnapshotBytes = 64 << 10

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
