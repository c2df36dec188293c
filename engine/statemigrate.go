package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/nearest"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink/changelog"
)

// MigrateState converts the state of a name to the version and scope that the configuration gives
// it, with a script whose function main says where nodes and timers belong; see state.Migration.
// The caller has locked the data folder.
func (a *Assembly) MigrateState(ctx context.Context, name string, mapping script.Script, dryRun bool) (*state.MigrationReport, error) {
	p, err := a.pipelineOfState(name)
	if err != nil {
		return nil, err
	}
	m := &state.Migration{
		To: a.describeState(p), Map: mapping, DryRun: dryRun, HomeSink: a.closedChangelog(p),
		FolderOf:  func(version int) string { return stateFolderOf(a.Config.Data, name, version) },
		Partition: pipeline.TimersOf,
	}
	if home := p.home(); home >= 0 {
		m.HomeSink = p.Sinks[home].Sink
	}
	if traits := p.Source.Traits(); traits.KeySet != nil {
		partitions, err := p.Source.Partitions(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the partitions of the source: %w", err)
		}
		m.KeySets = state.KeySets(partitions, traits.KeySet)
	}
	return m.Run(ctx)
}

func (a *Assembly) pipelineOfState(name string) (*Pipeline, error) {
	var names []string
	for _, p := range a.Pipelines {
		switch {
		case p.Config.State == nil:
		case p.Config.State.Name == name:
			return p, nil
		default:
			names = append(names, p.Config.State.Name)
		}
	}
	hint := "give a pipeline the key state: {name: …}"
	if near := nearest.Name(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return nil, event.WithHint(fmt.Errorf("no pipeline has a state %q", name), hint)
}

// DropState gives up a state that a pipeline has had, at every sink that keeps units of it, and
// removes its copies from this machine. It returns the units by sink. The caller has locked the
// data folder.
func (a *Assembly) DropState(ctx context.Context, pipelineName, name string) (units map[string][]string, err error) {
	i := slices.IndexFunc(a.Pipelines, func(p *Pipeline) bool { return p.Config.Name == pipelineName })
	if i < 0 {
		return nil, event.WithHint(fmt.Errorf("unknown pipeline %q", pipelineName), "perigee list pipelines names them")
	}
	p := a.Pipelines[i]
	var homes []state.Home
	for _, s := range p.Sinks {
		if store := s.Sink.Traits().Units; store != nil {
			homes = append(homes, state.Home{Name: s.Config.Name, Units: store})
		}
	}
	if changelog.Exists(a.Config.Data) {
		homes = append(homes, state.Home{Name: changelogName, Units: a.closedChangelog(p)})
	}
	units = map[string][]string{}
	for _, home := range homes {
		dropped, err := state.Drop(ctx, name, home)
		if err != nil {
			return units, err
		}
		if len(dropped) > 0 {
			units[home.Name] = dropped
		}
	}
	if len(units) == 0 {
		return nil, fmt.Errorf("no sink of pipeline %s has a state %s", pipelineName, name)
	}
	return units, a.removeCopies(name)
}

// removeCopies removes the folders of a state, in all versions.
func (a *Assembly) removeCopies(name string) error {
	later, err := filepath.Glob(stateFolderOf(a.Config.Data, name, 0) + "@[0-9]*")
	for _, folder := range append(later, stateFolderOf(a.Config.Data, name, 0)) {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}
