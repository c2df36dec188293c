package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/sink"
)

type checkCommand struct {
	configFlags
	Connect bool          `help:"Also connect to every server of sources and sinks and check credentials, grants, tables and queues, and the catalogs and warehouses of lakes. Changes nothing."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"Time limit of --connect."`
	Format  string        `default:"text" enum:"text,json,github,sarif" help:"text, or problems only: json, github (annotations of GitHub Actions) or sarif (2.1.0)."`
}

func (checkCommand) Help() string {
	return `Reads the configuration and loads its scripts as "perigee run" would. It reports every fault with file,
line and column. Without faults it prints the pipelines and the guarantee of each: exactly once, at
least once, or at most once. It writes nothing, and connects only to hosts of code. It looks for the
files of file sources, and compares the tables of the event store with the declared ones. With --connect
it also tests the servers, the http address, and the catalogs and warehouses of lakes. It does not put
a file there.

It also reports mistakes that otherwise only an event would reveal: unknown sinks, and variables that
nothing sets. "perigee run" logs these as warnings. A column with the name of an SQL keyword is only a
warning here too.

With --format json, github or sarif it prints only faults and warnings, in a form for programs.

Exit code: 0 without faults, 1 otherwise.

Examples:
  perigee check pipeline.yaml
  perigee check --format github pipeline.yaml
  perigee check --connect pipeline.yaml
  MYSQL_PASSWORD=secret perigee check examples/email/redis-mysql.yaml`
}

func (k *checkCommand) Run(c *console) error {
	if write := problemWriters[k.Format]; write != nil {
		warnings, err := k.check(c, io.Discard)
		var all []problem
		for _, warning := range warnings {
			all = append(all, problemsOf("warning", warning)...)
		}
		if err := write(c.out, append(problemsOf("error", err), all...)); err != nil {
			return err
		}
		if err != nil {
			return exitError(exitFailure)
		}
		return nil
	}
	warnings, err := k.check(c, c.out)
	for _, warning := range warnings {
		printMessage(c.err, "warning", warning, "")
	}
	if err == nil {
		fmt.Fprintln(c.out, "ok")
	}
	return err
}

// check checks the configuration and describes it on out. err are the faults.
func (k *checkCommand) check(c *console, out io.Writer) (warnings config.Errors, err error) {
	ctx := context.Background()
	options := engineOptions(c, k.Allow, nil)
	conf, err := k.load(ctx, c)
	if conf == nil {
		return nil, err
	}
	a, err := engine.Assemble(ctx, conf, options)
	if err != nil {
		return nil, err
	}
	printAssembly(out, a)
	notes, err := eventservice.CheckTables(a.Config)
	for _, note := range notes {
		fmt.Fprintln(out, note)
	}
	for _, p := range a.Pipelines {
		err = errors.Join(err, errors.Join(p.Mistakes...))
	}
	if running, _ := admin.IsRunning(a.Config.Data); !running { // an engine has checked its states
		err = errors.Join(err, a.CheckStates(ctx))
	}
	if !k.Connect {
		err = errors.Join(err, checkOffline(ctx, a))
	} else {
		err = errors.Join(err, printConnections(out, append(a.Connect(ctx, k.Timeout), k.checkLakes(ctx, a)...)))
	}
	return append(a.Config.KeywordColumns(), a.Config.LakesWithoutS3(c.lookup)...), errors.Join(err, a.Close())
}

// checkLakes checks the lakes of tables and the program that publishes them.
func (k *checkCommand) checkLakes(ctx context.Context, a *engine.Assembly) []engine.Connection {
	ctx, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	return eventservice.CheckLakes(ctx, a.Config)
}

// checkOffline checks the sources that need no server.
func checkOffline(ctx context.Context, a *engine.Assembly) error {
	var faults []error
	for _, p := range a.Pipelines {
		traits := p.Source.Traits()
		if !traits.Offline {
			continue
		}
		if err := traits.Check(ctx); event.IsPermanent(err) {
			faults = append(faults, p.Config.Source.At(fmt.Errorf("pipeline %s: %w", p.Config.Name, err), event.HintOf(err)))
		}
	}
	return config.Join(faults...)
}

// printAssembly prints the pipelines of a configuration, the Lua engine and the addresses.
func printAssembly(w io.Writer, a *engine.Assembly) {
	for _, p := range a.Pipelines {
		through := "unchanged"
		if p.ScriptOrigin != "" {
			through = "through " + p.ScriptOrigin
		}
		for _, column := range p.Config.Computed {
			through += ", with " + column.Name
		}
		kind := p.Config.Source.Kind
		fmt.Fprintf(w, "pipeline %s: %s, %s, into %s\n", p.Config.Name, kind, through, describeSinks(p.Sinks))
		if home, isChangelog := a.HomeOf(p); isChangelog {
			fmt.Fprintf(w, "  state %s: its home is the changelog in the data folder, %s\n", p.Config.State.Name, a.Config.Data)
		} else if home != "" {
			fmt.Fprintf(w, "  state %s: its home is sink %s\n", p.Config.State.Name, home)
		}
		if p.Shadow != nil {
			fmt.Fprintf(w, "  shadow: %s\n", p.Shadow.Status().Script)
		}
		if why := p.Source.Traits().AtMostOnce; why != "" {
			fmt.Fprintf(w, "  source %s: at most once: %s\n", kind, why)
		}
	}
	if usesLua(a.Config) {
		fmt.Fprintf(w, "lua: %s\n", describeLua())
	}
	state := ""
	if !datafolder.Used(a.Config.Data) {
		state = " (does not exist yet: run creates it)"
	}
	printData(w, a.Config.Data+state)
	address, _ := a.HTTP()
	fmt.Fprintf(w, "http: %s\n", cmp.Or(address, config.HTTPOff))
}

// describeSinks returns the sinks and their guarantees. The guarantee of a pipeline is that
// of its weakest sink; several sinks are listed below it.
func describeSinks(all []engine.Sink) string {
	if len(all) == 1 && all[0].Config.Name == all[0].Config.Kind {
		return fmt.Sprintf("%s (%s)", all[0].Config.Kind, all[0].Guarantee)
	}
	var lines strings.Builder
	var weak []string
	for _, s := range all {
		fmt.Fprintf(&lines, "\n  %s: %s (%s)", s.Config.Name, s.Config.Kind, s.Guarantee)
		if s.Config.Routed {
			lines.WriteString(", only routed rows")
		}
		if s.Guarantee != sink.ExactlyOnce {
			weak = append(weak, s.Config.Name)
		}
	}
	whole := string(sink.ExactlyOnce)
	if len(weak) > 0 {
		whole = fmt.Sprintf("%s, because of %s", sink.AtLeastOnce, strings.Join(weak, ", "))
	}
	return fmt.Sprintf("%d sinks (%s)%s", len(all), whole, &lines)
}

// printConnections prints the result of connecting to each source and sink. It returns
// the faults.
func printConnections(w io.Writer, all []engine.Connection) error {
	t := newTable("pipeline", "part", "kind", "state")
	var faults []error
	for _, one := range all {
		name := "pipeline " + one.Pipeline + ", "
		if one.Pipeline == "" {
			name = ""
		}
		t.AppendRow(table.Row{one.Pipeline, one.Part, one.Kind, connectionState(one)})
		if one.Err != nil {
			fault := fmt.Errorf("%s%s %s: %w", name, one.Part, one.Kind, one.Err)
			faults = append(faults, event.WithHint(fault, cmp.Or(event.HintOf(one.Err), "check that the server runs and that its address is right")))
		}
	}
	if _, err := fmt.Fprintln(w, t.Render()); err != nil {
		return err
	}
	for _, one := range all {
		if len(one.Tables) > 0 {
			fmt.Fprintf(w, "tables in the database of pipeline %s, %s %s: %s\n", one.Pipeline, one.Part, one.Kind, describeTables(one.Tables))
		}
	}
	return errors.Join(faults...)
}

// describeTables lists the tables of a sink in the user's database: existing ones, and those
// that run creates.
func describeTables(tables []sink.Table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Name + " (run creates it)"
		if t.Exists {
			names[i] = t.Name + " (exists)"
		}
	}
	return strings.Join(names, ", ")
}

func connectionState(one engine.Connection) string {
	switch {
	case !one.Checked:
		return "not checked: this kind has no check"
	case one.Err != nil:
		return "failed"
	}
	return "ok"
}
