package main

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/admin"
)

type stateSnapshotCommand struct {
	configFlags
	State string `arg:"" help:"Name of the state."`
	Unit  string `help:"Unit, as perigee state list names it; required if there are several."`
}

func (stateSnapshotCommand) Help() string {
	return `Makes a snapshot in the archive now, while the pipeline goes on. An engine makes one by itself when the segments
since the last one outweigh it. Without an engine, this command takes the unit over.

Example:
  perigee state snapshot pipeline.yaml users`
}

func (s *stateSnapshotCommand) Run(c *console) error {
	return s.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		return c.followSteps(a.SnapshotState(ctx, admin.StateTask{State: s.State, Unit: s.Unit}), func(step admin.StateStep) error {
			made := step.Snapshot
			_, err := fmt.Fprintf(c.out, "unit %s: a snapshot of note %d: %s, %s in the archive\n",
				step.Unit, made.Note, countOf(int(made.Nodes), "node"), byteCount(made.Bytes))
			return err
		})
	})
}

type stateRestoreCommand struct {
	configFlags
	State string `arg:"" help:"Name of the state."`
	Unit  string `help:"Unit, as perigee state list names it; required if there are several."`
	Yes   bool   `short:"y" help:"Do not ask."`
}

func (stateRestoreCommand) Help() string {
	return `Makes the copy of a unit at exactly the last note that the home has, from the snapshots and segments of the archive and
the notes that the home keeps. Use it after the database that is the home was restored to an older
state, which an engine refuses because its copy is newer, or if the copy is damaged. Stop the engine first.

The copy of before is kept, with another name in the folder of the state. Events that the source still has and that
the home lost with its older state are read again.

A machine without a copy needs no command: an engine there restores the unit when it takes it over.

Example:
  perigee state restore pipeline.yaml users`
}

func (s *stateRestoreCommand) Run(c *console) error {
	return s.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		if !s.Yes && !a.Remote() {
			fmt.Fprintf(c.err, "the copy of state %s becomes that of the last note of its home; the copy of now is renamed\n", s.State)
			if err := c.confirm("Continue?"); err != nil {
				return err
			}
		}
		return c.followSteps(a.RestoreState(ctx, admin.StateTask{State: s.State, Unit: s.Unit}), func(step admin.StateStep) error {
			fmt.Fprintf(c.out, "unit %s: restored at note %d\n", step.Unit, step.Restored.Note)
			if step.Restored.Aside != "" {
				fmt.Fprintf(c.out, "the copy of before is %s: remove it when it is not needed any more\n", step.Restored.Aside)
			}
			return nil
		})
	})
}

// followSteps shows the progress of operations on a terminal, and passes their results to use.
func (c *console) followSteps(steps iter.Seq2[admin.StateStep, error], use func(admin.StateStep) error) error {
	var at atomic.Pointer[admin.StateStep]
	hide := newDisplay(c.err).show(func(time.Duration) string { return lineOf(at.Load()) })
	defer func() { hide() }()
	for step, err := range steps {
		if err != nil {
			return err
		}
		at.Store(&step)
		if step.Progress != nil {
			continue
		}
		hide() // the result is written where the progress was
		err := use(step)
		hide = newDisplay(c.err).show(func(time.Duration) string { return lineOf(at.Load()) })
		if err != nil {
			return err
		}
	}
	return nil
}

// lineOf draws the progress of an operation.
func lineOf(s *admin.StateStep) string {
	if s == nil || s.Progress == nil {
		return ""
	}
	p := s.Progress
	return fmt.Sprintf("unit %s: %s %s of %s %s", firstLine(s.Unit, 40), bar(p.Done, p.Total), thousands(p.Done), thousands(p.Total), p.What)
}
