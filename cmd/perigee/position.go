package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

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
	State     string `placeholder:"keep|empty" help:"Required for a pipeline with a state. keep: leave the state as it is, so that events that are read again change it again. empty: empty the unit of the partition."`
	Yes       bool   `short:"y" help:"Do not ask for confirmation."`
}

const moveHelp = `
The command first prints which events will be read again and which will be skipped, and asks for
confirmation; without a terminal --yes is required. Rows of events that are read again are written again,
unless the sink upserts them. Events that the source has removed cannot be read again: a Redis list is
trimmed after a commit, a file is not.

The command refuses to move a partition that a worker owns: pause the pipeline first, or use --force. It
refuses to move a pipeline with a state, unless --state says what happens to it.
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
  perigee position set pipeline.yaml orders 0 --partition 'orders/3' --sink archive --yes`
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
	for _, s := range m.Sinks {
		fmt.Fprintf(w, "  sink %s: %s read again, %s skipped\n", s.Sink, countedRanges(s.EventsAgain, s.ReadAgain), countedRanges(s.EventsSkipped, s.Skipped))
	}
	printData(w, data)
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
