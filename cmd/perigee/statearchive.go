package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/admin"
)

type stateVerifyCommand struct {
	configFlags
	State  string `arg:"" optional:"" help:"Verify only this state."`
	Unit   string `help:"Verify only this unit, as perigee state list names it."`
	Format string `enum:"table,json" default:"table" help:"table or json."`
}

func (stateVerifyCommand) Help() string {
	return `Reads all that there is of the units of a state, and changes nothing: the copy on this machine, each note that the
home keeps, and each object of the archive. It also checks that a machine without a copy could continue: that a
snapshot and segments lead to the first note of the home.

It reads the whole archive. While it checks a copy, the file of the copy cannot reuse space: run it when
little changes.

Exit code: 0 if all is sound, 1 otherwise.

Examples:
  perigee state verify pipeline.yaml
  perigee state verify pipeline.yaml users --unit orders/3 --format json`
}

func (v *stateVerifyCommand) Run(c *console) error {
	return v.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		t := newTable("state", "unit", "place", "has", "faults")
		faults := 0
		err := c.followSteps(a.VerifyState(ctx, admin.StateTask{State: v.State, Unit: v.Unit}), func(s admin.StateStep) error {
			for _, check := range s.Checks {
				faults += len(check.Faults)
				shown := "none"
				if len(check.Faults) > 0 {
					shown = strings.Join(check.Faults, "\n")
				}
				t.AppendRow([]any{s.State, firstLine(s.Unit, 40), check.Place, check.Has, shown})
			}
			if v.Format == "json" {
				return newEncoder(c.out).Encode(s)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if v.Format == "table" {
			if _, err := fmt.Fprintln(c.out, t.Render()); err != nil {
				return err
			}
			printData(c.out, a.Data())
		}
		if faults > 0 {
			return fmt.Errorf("%s found", countOf(faults, "fault"))
		}
		return nil
	})
}

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
	Yes   bool   `short:"y" help:"Do not ask for confirmation."`
}

func (stateRestoreCommand) Help() string {
	return `Makes the copy of a unit at exactly the last note that the home has, from the snapshots and segments of the archive and
the notes that the home keeps. Use it after the database that is the home was restored to an older
state, which an engine refuses because its copy is newer, or if the copy is damaged. Stop the engine first.

The previous copy is kept under another name in the folder of the state. Events that the source still has and that
the home lost with its older state are read again.

A machine without a copy needs no command: an engine there restores the unit when it takes it over.

Example:
  perigee state restore pipeline.yaml users`
}

func (s *stateRestoreCommand) Run(c *console) error {
	return s.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		if !s.Yes && !a.Remote() {
			fmt.Fprintf(c.err, "the copy of state %s becomes that of the last note of its home; the current copy is renamed\n", s.State)
			if err := c.confirm("Continue?"); err != nil {
				return err
			}
		}
		return c.followSteps(a.RestoreState(ctx, admin.StateTask{State: s.State, Unit: s.Unit}), func(step admin.StateStep) error {
			fmt.Fprintf(c.out, "unit %s: restored at note %d\n", step.Unit, step.Restored.Note)
			if step.Restored.Aside != "" {
				fmt.Fprintf(c.out, "the previous copy is %s: remove it when you no longer need it\n", step.Restored.Aside)
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
