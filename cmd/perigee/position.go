package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine"
)

type positionCommand struct {
	Show   positionShowCommand   `cmd:"" help:"Show the position of each sink in each partition."`
	Set    positionSetCommand    `cmd:"" help:"Set the position that a pipeline continues from."`
	Rewind positionRewindCommand `cmd:"" help:"Move back by a number of events, to read them again."`
}

type positionShowCommand struct {
	configFlags
	Pipeline string `arg:"" optional:"" help:"Show only this pipeline."`
	Retries  bool   `help:"Also show the partitions of retried dead letters."`
	Format   string `enum:"table,json" default:"table" help:"table or json."`
}

func (positionShowCommand) Help() string {
	return `Every exactly-once sink stores, beside the rows, the ranges of positions that it has committed of each
partition. The engine does not read positions again that all of them have. Several ranges mean batches
that were written out of order or are still in flight. For Redis, Kafka, NATS and single files, the
command also shows the range in the source and the lag of each sink. The lag includes positions without
an event.

Examples:
  perigee position show pipeline.yaml
  perigee position show pipeline.yaml emails --format json`
}

func (p *positionShowCommand) Run(c *console) error {
	return p.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		all, err := a.Positions(ctx, admin.PositionFilter{Pipeline: p.Pipeline, Retries: p.Retries})
		if err != nil {
			return err
		}
		if p.Format == "json" {
			return newEncoder(c.out).Encode(all)
		}
		if err := printPositions(c.out, all); err != nil {
			return err
		}
		printData(c.out, a.Data())
		return nil
	})
}

func printPositions(w io.Writer, all []admin.Position) error {
	t := newTable("pipeline", "partition", "sink", "next", "committed", "source has", "lag")
	for _, one := range all {
		lag := ""
		if one.Lag != nil {
			lag = strconv.FormatUint(*one.Lag, 10)
		}
		t.AppendRow(table.Row{one.Pipeline, one.Partition, one.Sink, one.Next, firstLine(one.Committed, 60), firstLine(one.Source, 60), lag})
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no sink has committed a position yet")
		return err
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// moveFlags select the positions to move.
type moveFlags struct {
	configFlags
	Pipeline  string `arg:"" help:"Name of the pipeline."`
	Partition string `help:"Partition, or the first characters of its name; required if there are several."`
	Sink      string `help:"Move the position only in this sink."`
	Force     bool   `help:"Proceed even if a worker owns the partition; that worker is fenced, and continues from the new position."`
	State     string `placeholder:"keep|empty|NUMBER" help:"Required for a pipeline with a state. keep: leave the state as it is, so that events that are read again change it again. empty: empty the unit of the partition. NUMBER: set the unit to what it was after the note with this number."`
	Yes       bool   `short:"y" help:"Do not ask for confirmation."`
}

const moveHelp = `
The command first prints which events will be read again and which will be skipped, and asks for
confirmation; without a terminal --yes is required. Rows of events that are read again are written again,
unless the sink upserts them. Events that the source has removed cannot be read again: a Redis list is
trimmed after a commit, a file is not.

The command refuses to move a partition that a worker owns: pause the pipeline first, or use --force. It
refuses to move a pipeline with a state, unless --state says what happens to it.

--state NUMBER restores the unit of the partition as of a note, from the archive and the notes that the
home keeps. The command prints the position that the partition had after the note, and warns if it is
another one than the new position. The pipeline must be paused in all engines, --force does not help, and the sinks must
have all rows. Time does not go back: what has expired since stays gone, and timers that are due again
run again. A move that was interrupted is refused by the engine until the command is repeated.
`

type positionSetCommand struct {
	moveFlags
	Next uint64 `arg:"" help:"Position of the event to continue with."`
}

func (positionSetCommand) Help() string {
	return `Marks all events before the position as committed in the sinks, and all others as not committed.
` + moveHelp + `
Examples:
  perigee position set pipeline.yaml emails 150000
  perigee position set pipeline.yaml orders 0 --partition 'orders/3' --sink archive --yes
  perigee position set pipeline.yaml visits 150000 --state 317`
}

func (p *positionSetCommand) Run(c *console) error { return p.move(c, admin.Move{Next: p.Next}) }

type positionRewindCommand struct {
	moveFlags
	Events uint64 `arg:"" help:"Number of events to go back."`
}

func (positionRewindCommand) Help() string {
	return `Marks the last events as not committed in the sinks, so that they are read again.
` + moveHelp + `
Examples:
  perigee position rewind pipeline.yaml emails 5000`
}

func (p *positionRewindCommand) Run(c *console) error {
	return p.move(c, admin.Move{Rewind: &p.Events})
}

func (f *moveFlags) move(c *console, m admin.Move) error {
	m.Pipeline, m.Partition, m.Sink, m.Force, m.State = f.Pipeline, f.Partition, f.Sink, f.Force, f.State
	return f.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		if !f.Yes {
			m.DryRun = true
			result, err := a.SetPosition(ctx, m)
			if err != nil {
				return err
			}
			printMove(c.err, result, a.Data())
			if err := c.confirm("Continue?"); err != nil {
				return err
			}
			m.DryRun = false
		}
		result, err := a.SetPosition(ctx, m)
		if err != nil {
			return err
		}
		printMove(c.out, result, a.Data())
		return nil
	})
}

// printMove prints which events are read again and which are skipped.
func printMove(w io.Writer, m *admin.MoveResult, data string) {
	fmt.Fprintf(w, "pipeline %s, partition %s: continues from %d\n", m.Pipeline, m.Partition, m.Next)
	if m.EmptiedUnit != "" {
		fmt.Fprintf(w, "  unit %s of the state: emptied\n", m.EmptiedUnit)
	}
	printSetUnit(w, m)
	for _, s := range m.Sinks {
		fmt.Fprintf(w, "  sink %s: %s read again, %s skipped\n", s.Sink, countedRanges(s.EventsAgain, s.ReadAgain), countedRanges(s.EventsSkipped, s.Skipped))
	}
	printData(w, data)
}

// printSetUnit prints which unit is set to an earlier note, and why that may not fit the position.
func printSetUnit(w io.Writer, m *admin.MoveResult) {
	set := m.SetUnit
	if set == nil {
		return
	}
	n := set.Note
	fmt.Fprintf(w, "  unit %s of the state: set to what it was after note %d of %d", set.Unit, n.Number, n.Last)
	if !n.Clock.IsZero() {
		fmt.Fprintf(w, ", at %s", n.Clock.UTC().Format(time.RFC3339))
	}
	if set.Changed != nil {
		fmt.Fprintf(w, "; %s set, %d removed", countOf(int(set.Changed.Set), "node"), set.Changed.Removed)
	}
	fmt.Fprintln(w)
	switch {
	case n.Number == 0 && m.Next == 0:
	case n.Next == nil:
		fmt.Fprintf(w, "  warning: the position of the partition after note %d is unknown\n", n.Number)
	case *n.Next > m.Next:
		fmt.Fprintf(w, "  warning: after note %d the partition continued from %d: up to %s will count twice in the state\n", n.Number, *n.Next, countOf(int(*n.Next-m.Next), "event"))
	case *n.Next < m.Next:
		fmt.Fprintf(w, "  warning: after note %d the partition continued from %d: up to %s will be missing in the state\n", n.Number, *n.Next, countOf(int(m.Next-*n.Next), "event"))
	}
	if len(set.Others) > 0 {
		fmt.Fprintf(w, "  warning: the unit forgets later events of %s, whose positions stay: %s\n", countOf(len(set.Others), "other partition"), firstLine(strings.Join(set.Others, ", "), 200))
	}
	if n.Behind {
		fmt.Fprintln(w, "  warning: the clock follows the times of events and does not go back: events that are read again may be late")
	}
}

func countedRanges(events uint64, ranges string) string {
	if events == 0 {
		return "none"
	}
	return fmt.Sprintf("%s %s", countOf(int(events), "event"), ranges)
}

// usePositions calls operate with the operations on the configuration's data folder.
// Without a running engine they need the configuration's sources and sinks.
func (f configFlags) usePositions(c *console, operate func(context.Context, *admin.Admin) error) error {
	ctx := context.Background()
	conf, err := f.load(ctx, c)
	if err != nil {
		return err
	}
	running, err := admin.IsRunning(conf.Data)
	if err != nil {
		return err
	}
	options := engineOptions(c, f.Allow, nil)
	var pipelines []admin.Pipeline
	closeAll := func() error { return nil }
	if !running {
		assembly, err := engine.Assemble(ctx, conf, options)
		if err != nil {
			return err
		}
		pipelines = assembly.AdminPipelines()
		closeAll = func() error {
			err := assembly.Close()
			for _, s := range options.Services {
				err = errors.Join(err, s.Close())
			}
			return err
		}
	}
	a, err := admin.Open(conf.Data, pipelines)
	if err == nil {
		err = errors.Join(operate(ctx, a), a.Close())
	}
	return errors.Join(err, closeAll())
}
