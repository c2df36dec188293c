package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/chaos"
)

type verifyCommand struct {
	Config   string        `arg:"" optional:"" type:"existingfile" help:"Configuration with the pipeline to verify; without it, the email example in every combination of source and sink."`
	Pipeline string        `placeholder:"NAME" help:"Pipeline of the configuration; required if it has several."`
	Events   string        `type:"existingfile" placeholder:"FILE" help:"Sample events, one JSON document per line (default: generated email events)."`
	ID       string        `name:"id" default:"id" placeholder:"FIELD" help:"Field that identifies an event: verify sets it to a number, and every sink must have a column for it."`
	Kills    int           `default:"500" help:"Total number of processes to kill."`
	Quick    bool          `help:"Kill 40 processes, in about a minute."`
	Round    string        `placeholder:"NAME" help:"Run only rounds with this text in their name."`
	Soak     time.Duration `placeholder:"DURATION" help:"Instead of killing processes, push events faster than the sink writes them for this long, and measure the memory."`
	Seed     uint64        `help:"Seed of an earlier run: repeats its faults in the same order."`
	Keep     bool          `help:"Keep the folder with servers, workers and logs after a success too."`
}

func (verifyCommand) Help() string {
	return `Tests on this machine that your pipeline writes each event exactly once. Private servers of the same kinds
replace source and sinks. Redis, MariaDB and PostgreSQL need an installed redis-server, mariadbd and
postgres; the event store and files need nothing. Script, computed columns and the columns of the sinks
stay the same; hashes of a Redis sink become a list, so that a duplicate shows up. The command does not
use your own servers.

While events flow, verify kills workers and servers, kills workers at named points of a batch, kills
the processes of isolated scripts, suspends workers inside transactions until others have taken over, cuts
and stalls connections, and restores Redis and the database to older states under running producers. In
one round a shadow loops and uses up its memory, in another the script has a state. Then it accounts for every event: either each sink has
the rows that the script returns for it, or it is a dead letter, exactly once, and the state remembers it once. Events that Redis lost
through a restore may be missing, but must not appear twice.

The command sends the events of --events in turn, each with a new number in the field --id.

Exit code: 0 if no event was lost or duplicated, 1 otherwise, 2 for a usage error. After a failure the
command keeps the folder with all logs, and prints the seed that repeats the faults.

Examples:
  perigee verify --quick
  perigee verify pipeline.yaml --events sample.ndjson --id order_id
  perigee verify --seed 4711 --round streams
  perigee verify --soak 10m`
}

// quickKills is the number of kills with --quick.
const quickKills = 40

func (v *verifyCommand) Run(c *console) error {
	if v.Seed == 0 {
		v.Seed = rand.Uint64N(1_000_000)
	}
	if v.Quick {
		v.Kills = quickKills
	}
	folder, err := os.MkdirTemp("", "perigee-verify-")
	if err != nil {
		return err
	}
	// PostgreSQL runs as another account when this is root.
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "verify: seed %d\n", v.Seed)
	err = v.run(c, folder)
	if err != nil || v.Keep {
		fmt.Fprintf(c.err, "verify: servers, workers and their logs are in %s\n", folder)
	} else {
		err = os.RemoveAll(folder)
	}
	return event.WithHint(err, fmt.Sprintf("read faults.log and worker-N/worker.log in the folder of the round; --seed %d repeats the faults", v.Seed))
}

func (v *verifyCommand) run(c *console, folder string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rounds, err := v.rounds(c, folder)
	if err != nil {
		return err
	}
	events, err := v.events()
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	display := newDisplay(c.err)
	runner := chaos.NewRunner(chaos.Config{
		Binary: v.binary(binary), Folder: folder, Events: events, Expect: expect(c), ReadStore: eventservice.ReadIDs, ReadState: readState(c), Keep: v.Keep,
		Log: func(line string) { fmt.Fprintf(display, "verify: %s\n", line) },
	}, rounds)
	if v.Soak > 0 {
		return v.soak(ctx, c, runner, rounds[0])
	}
	end := display.show(killsBar(runner))
	err = runner.Run(ctx, rounds)
	end()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	v.report(c, &runner.Totals)
	return err
}

// binary returns the program that workers run. A test binary acts as the command only
// under the name perigee.
func (*verifyCommand) binary(executable string) string {
	if strings.HasSuffix(executable, ".test") {
		return "perigee"
	}
	return executable
}

// killsBar returns a bar that fills up with the kills.
func killsBar(r *chaos.Runner) func(time.Duration) string {
	return func(time.Duration) string {
		round, kills, planned := r.Progress()
		return fmt.Sprintf("%s %d of %d kills  %s", bar(uint64(kills), uint64(planned)), kills, planned, round)
	}
}

// report prints the faults and the result.
func (v *verifyCommand) report(c *console, t *chaos.Totals) {
	out := table.NewWriter()
	out.SetStyle(table.StyleLight)
	out.AppendHeader(table.Row{"fault", "times"})
	for _, name := range t.FaultNames() {
		out.AppendRow(table.Row{name, t.Faults[name]})
	}
	out.AppendSeparator()
	least, median, most := t.TakeoverTimes()
	out.AppendRow(table.Row{"takeover by others: least, median, most", fmt.Sprintf("%.1f, %.1f, %.1f s of %d",
		least.Seconds(), median.Seconds(), most.Seconds(), len(t.Takeovers))})
	out.AppendRow(table.Row{"events sent, events lost by Redis", fmt.Sprintf("%d, %d", t.Events, t.Forgotten)})
	out.AppendRow(table.Row{"rows, dead letters", fmt.Sprintf("%d, %d", t.Rows, t.Dead)})
	out.AppendRow(table.Row{"lost, duplicated", fmt.Sprintf("%d, %d", t.Lost, t.Duplicated)})
	fmt.Fprintln(c.out, out.Render())
	fmt.Fprintf(c.out, "figure verify_kills %d\nfigure verify_lost %d\nfigure verify_duplicated %d\n", t.Kills, t.Lost, t.Duplicated)
}

func (v *verifyCommand) soak(ctx context.Context, c *console, r *chaos.Runner, round chaos.Round) error {
	soak, err := r.Soak(ctx, round, v.Soak)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "verify: %v with a slow sink: %v; %d events still waiting\n", v.Soak, soak.Report, soak.Backlog)
	soak.Print(c.out)
	return soak.Err()
}

// createFolder creates a folder in another one.
func createFolder(folder, name string) (string, error) {
	path := filepath.Join(folder, name)
	return path, os.MkdirAll(path, 0o700)
}
