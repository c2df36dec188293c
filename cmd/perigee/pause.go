package main

import (
	"context"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/admin"
)

type pauseCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	dataFlags
	Reason string `help:"The reason that \"perigee status\" and the log show."`
}

func (pauseCommand) Help() string {
	return `Stops reading, delivers the events already read, and releases every partition, so that other workers can
take over. The pipeline stays paused until "perigee resume", even after a restart of the engine. Without
a running engine, the pause takes effect when the next one starts.

Examples:
  perigee pause emails --reason 'the table is being rebuilt'
  perigee pause emails --config pipeline.yaml`
}

// pauseTimeout bounds the wait of pause for batches in flight.
const pauseTimeout = 10 * time.Second

func (p *pauseCommand) Run(c *console) error {
	return p.use(c, func(ctx context.Context, a *admin.Admin) error {
		if err := a.Pause(ctx, p.Pipeline, p.Reason); err != nil {
			return err
		}
		if !a.Remote() {
			fmt.Fprintf(c.out, "no engine is running: pipeline %s will be paused when one starts\n", p.Pipeline)
			printData(c.out, a.Data())
			return nil
		}
		open, err := waitPaused(ctx, a, p.Pipeline)
		if err != nil {
			return err
		}
		if open > 0 {
			fmt.Fprintf(c.out, "pipeline %s has stopped reading and still delivers events of %s: see perigee status\n", p.Pipeline, countOf(open, "partition"))
		} else {
			fmt.Fprintf(c.out, "pipeline %s is paused until perigee resume %s\n", p.Pipeline, p.Pipeline)
		}
		printData(c.out, a.Data())
		return nil
	})
}

// waitPaused waits until a pipeline has no open partition. It returns the number of open
// partitions after pauseTimeout.
func waitPaused(ctx context.Context, a *admin.Admin, name string) (open int, err error) {
	for deadline := time.Now().Add(pauseTimeout); ; time.Sleep(50 * time.Millisecond) {
		all, err := a.Status(ctx)
		if err != nil {
			return 0, err
		}
		open = 0
		for _, one := range all {
			if one.Pipeline == name {
				open = one.Open
			}
		}
		if open == 0 || time.Now().After(deadline) {
			return open, nil
		}
	}
}

type resumeCommand struct {
	Pipeline string `arg:"" help:"Name of the pipeline."`
	dataFlags
}

func (resumeCommand) Help() string {
	return `Resumes a paused pipeline: it reads again.

Examples:
  perigee resume emails
  perigee resume emails --config pipeline.yaml`
}

func (r *resumeCommand) Run(c *console) error {
	return r.use(c, func(ctx context.Context, a *admin.Admin) error {
		if err := a.Resume(ctx, r.Pipeline); err != nil {
			return err
		}
		if a.Remote() {
			fmt.Fprintf(c.out, "pipeline %s is resumed\n", r.Pipeline)
		} else {
			fmt.Fprintf(c.out, "no engine is running: pipeline %s will read when one starts\n", r.Pipeline)
		}
		printData(c.out, a.Data())
		return nil
	})
}
