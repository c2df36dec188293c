package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
)

type stateMigrateCommand struct {
	configFlags
	State  string `arg:"" help:"Name of the state."`
	Script string `required:"" placeholder:"FILE" help:"Script whose function main says where each node belongs."`
	DryRun bool   `help:"Run the script and print what would be moved. Changes nothing."`
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (stateMigrateCommand) Help() string {
	return `Converts a state to the version and scope that the configuration gives it. The engine must be stopped, and
all copies of the old units must be on this machine. First set version: in the configuration to a higher
number, and the new scope, if it changes.

The function main of the script gets each node as {"unit": …, "path": ["^users", "ada"], "value": …}, and
each timer as {"unit": …, "timer": KEY, "due": SECONDS}. It returns it with its new unit; with another
path or value, if they change; nothing, to drop it; or several, to copy it. Expiry times stay. The unit
of scope: pipeline is "all".

The new units become valid at once, when all are complete. A migration that was killed begins again. The
old units stay, and no pipeline uses them.

Examples:
  perigee state migrate pipeline.yaml users --script map.lua --dry-run
  perigee state migrate pipeline.yaml users --script map.lua`
}

func (m *stateMigrateCommand) Run(c *console) (err error) {
	text, err := os.ReadFile(m.Script)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	ctx := context.Background()
	code := script.Code{Name: m.Script, Text: text, Files: script.Folder(filepath.Dir(m.Script))}
	mapping, err := languages()[0].Load(ctx, code, script.Options{Sinks: []script.Sink{{Name: "units"}}, Log: slog.New(slog.NewTextHandler(c.err, nil))})
	if err != nil {
		return engine.ScriptError(err, code)
	}
	defer mapping.Close()
	return m.withoutEngine(ctx, c, func(a *engine.Assembly) error {
		report, err := a.MigrateState(ctx, m.State, mapping, m.DryRun)
		if err != nil {
			return err
		}
		if m.Format == "json" {
			return newEncoder(c.out).Encode(report)
		}
		return m.print(c.out, report)
	})
}

func (m *stateMigrateCommand) print(w io.Writer, report *state.MigrationReport) error {
	t := newTable("unit", fmt.Sprintf("nodes in version %d", report.From), "timers", fmt.Sprintf("nodes in version %d", report.To), "timers")
	before, after := countsOf(report.Old), countsOf(report.New)
	names := slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t.AppendRow(table.Row{firstLine(name, 40), thousands(before[name].Nodes), thousands(before[name].Timers), thousands(after[name].Nodes), thousands(after[name].Timers)})
	}
	if _, err := fmt.Fprintln(w, t.Render()); err != nil {
		return err
	}
	verb := "migrated to"
	if m.DryRun {
		verb = "can be migrated to"
	}
	_, err := fmt.Fprintf(w, "state %s %s version %d; %d dropped\n", m.State, verb, report.To, report.Dropped)
	return err
}

func countsOf(all []state.MigrationCount) map[string]state.MigrationCount {
	counts := map[string]state.MigrationCount{}
	for _, one := range all {
		counts[one.Unit] = one
	}
	return counts
}

// withoutEngine calls f with the parts of the configuration while no engine runs.
func (f configFlags) withoutEngine(ctx context.Context, c *console, use func(*engine.Assembly) error) (err error) {
	conf, err := f.load(ctx, c)
	if err != nil {
		return err
	}
	options := engineOptions(c, f.Allow, nil)
	a, err := engine.Assemble(ctx, conf, options)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, a.Close())
		for _, s := range options.Services {
			err = errors.Join(err, s.Close())
		}
	}()
	lock, err := datafolder.Lock(a.Config.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return use(a)
}

type stateDropCommand struct {
	configFlags
	Pipeline string `arg:"" help:"Name of the pipeline."`
	State    string `arg:"" help:"Name of the state."`
	Yes      bool   `short:"y" help:"Do not ask for confirmation."`
}

func (stateDropCommand) Help() string {
	return `Gives up a state that a pipeline has had, for good: the pipeline can then run without state:, with another
state, or with the state of this name in a higher version:, which begins empty. The engine must be
stopped. The command removes the copies on this machine, and the notes from the sinks.

A pipeline whose only positions are in the changelog keeps them there; without a state it does not use
them, and reads again what its source has.

Examples:
  perigee state drop pipeline.yaml visits users`
}

func (d *stateDropCommand) Run(c *console) error {
	ctx := context.Background()
	return d.withoutEngine(ctx, c, func(a *engine.Assembly) error {
		if !d.Yes {
			fmt.Fprintf(c.err, "state %s of pipeline %s will be given up; it cannot be restored\n", d.State, d.Pipeline)
			if err := c.confirm("Continue?"); err != nil {
				return err
			}
		}
		units, err := a.DropState(ctx, d.Pipeline, d.State)
		if err != nil {
			return err
		}
		for _, home := range slices.Sorted(maps.Keys(units)) {
			fmt.Fprintf(c.out, "sink %s: gave up %s: %s\n", home, countOf(len(units[home]), "unit"), firstLine(strings.Join(units[home], ", "), 100))
		}
		return nil
	})
}
