package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/perigeedb/perigee/engine/eventsql"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/chaos"
)

type verifyCommand struct {
	Config   string        `arg:"" optional:"" type:"existingfile" help:"Configuration with the pipeline to verify; without it, the example of email events in every combination."`
	Pipeline string        `placeholder:"NAME" help:"Pipeline of the configuration; needed when it has several."`
	Events   string        `type:"existingfile" placeholder:"FILE" help:"Lines of JSON: what the events look like. Default: made-up email events."`
	ID       string        `name:"id" default:"id" placeholder:"FIELD" help:"Field of the events that is theirs alone: it is numbered anew, and a column of every sink must have it."`
	Kills    int           `default:"500" help:"Processes to kill in all."`
	Quick    bool          `help:"Forty kills instead, in about a minute."`
	Round    string        `placeholder:"NAME" help:"Only rounds with this in their name."`
	Soak     time.Duration `placeholder:"DURATION" help:"Instead of killing: let events come faster than they go for so long, and watch the memory."`
	Seed     uint64        `help:"Repeats the faults of a run, their order and their places."`
	Keep     bool          `help:"Keep the folder with servers, workers and logs, also when all is well."`
}

func (verifyCommand) Help() string {
	return `Proves that each event lands once, on this machine, with your pipeline. Source and sinks are replaced by
private servers of the same kinds (Redis, MariaDB, PostgreSQL: redis-server, mariadbd and postgres must be
installed; the event store needs nothing); script, computed columns and the columns of the sinks stay. Your
own servers are not touched, and not needed.

While events flow, workers and servers are killed, workers at named points of the way of a batch too,
frozen inside transactions and woken up when others have their work, connections are cut and stalled,
Redis is set back to older snapshots under running producers, and the database to older files. Then every
event is looked for: what the script makes of it must be in every sink, or be a dead letter, just once.
What Redis was made to forget may have landed before, but not twice.

Events are those of --events in turn, each numbered anew in the field --id.

Exit code: 0 when no event was lost or doubled, 1 otherwise, 2 for a misuse. After a failure the folder
with all logs is kept, and the seed that repeats the faults is printed.

Examples:
  perigee verify --quick
  perigee verify pipeline.yaml --events sample.ndjson --id order_id
  perigee verify --seed 4711 --round streams
  perigee verify --soak 10m`
}

// quickKills are those of --quick.
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
	return event.WithHint(err, fmt.Sprintf("--seed %d repeats the faults; faults.log and worker-N/worker.log in the folder of the round tell what happened", v.Seed))
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
		Binary: v.binary(binary), Folder: folder, Events: events, Expect: expect(c), ReadStore: eventsql.ReadIDs, Keep: v.Keep,
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

// binary is what workers run. A test binary is the command only under its name.
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

// report prints what was done and found.
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
	out.AppendRow(table.Row{"events, and those that Redis forgot", fmt.Sprintf("%d, %d", t.Events, t.Forgotten)})
	out.AppendRow(table.Row{"rows, and dead letters", fmt.Sprintf("%d, %d", t.Rows, t.Dead)})
	out.AppendRow(table.Row{"lost, and duplicated", fmt.Sprintf("%d, %d", t.Lost, t.Duplicated)})
	fmt.Fprintln(c.out, out.Render())
	fmt.Fprintf(c.out, "figure verify_kills %d\nfigure verify_lost %d\nfigure verify_duplicated %d\n", t.Kills, t.Lost, t.Duplicated)
}

func (v *verifyCommand) soak(ctx context.Context, c *console, r *chaos.Runner, round chaos.Round) error {
	soak, err := r.Soak(ctx, round, v.Soak)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "verify: %v with a slow sink: %v; %d events were left waiting\n", v.Soak, soak.Report, soak.Backlog)
	soak.Print(c.out)
	return soak.Err()
}

// folderOf makes a folder below another.
func folderOf(folder, name string) (string, error) {
	path := filepath.Join(folder, name)
	return path, os.MkdirAll(path, 0o700)
}
