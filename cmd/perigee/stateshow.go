package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
)

type stateShowCommand struct {
	configFlags
	State  string `arg:"" help:"Name of the state."`
	Unit   string `help:"Show only this unit."`
	Format string `enum:"text,json" default:"text" help:"text or json."`
}

func (stateShowCommand) Help() string {
	return `Shows for each unit: the process that took it over last, the notes that the home keeps, what this machine has
of it (the unit itself, a copy that follows its owner, or a copy that nothing uses), and the timers that are
due next.

Examples:
  perigee state show pipeline.yaml users
  perigee state show pipeline.yaml users --unit queue --format json`
}

// timersShown is how many timers of a unit are shown.
const timersShown = 3

// A shownUnit is a unit with its next timers.
type shownUnit struct {
	admin.StateUnit
	Timers []admin.StateTimer `json:"timers,omitempty"` // due next, if this machine has the unit
}

func (s *stateShowCommand) Run(c *console) error {
	return s.usePositions(c, func(ctx context.Context, a *admin.Admin) error {
		all, err := a.States(ctx, admin.StateFilter{State: s.State})
		if err != nil {
			return err
		}
		units := []shownUnit{}
		for _, u := range all {
			if s.Unit != "" && u.Unit != s.Unit {
				continue
			}
			shown := shownUnit{StateUnit: u}
			if u.Copy != nil && u.Copy.Refused == "" && u.Copy.Begun <= u.Copy.Last {
				shown.Timers, err = a.StateTimers(ctx, admin.TimerQuery{State: s.State, Unit: u.Unit, Limit: timersShown})
				if err != nil {
					return err
				}
			}
			units = append(units, shown)
		}
		if len(units) == 0 {
			if s.Unit != "" {
				return event.WithHint(fmt.Errorf("state %s has no unit %q", s.State, s.Unit), "list the units: perigee state list")
			}
			return event.WithHint(fmt.Errorf("state %s has no unit yet", s.State), "a unit begins with the first event of its partition")
		}
		if s.Format == "json" {
			return newEncoder(c.out).Encode(units)
		}
		for i, u := range units {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			if err := u.print(c.out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (u *shownUnit) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	row("unit", "%s of state %s, pipeline %s", firstLine(u.Unit, 100), u.State, u.Pipeline)
	owner := u.Owner
	if owner == "" {
		owner = "none yet"
	}
	row("owner", "%s", owner)
	row("notes", "up to %d in sink %s, which keeps %s", u.Last, u.Home, keptNotes(u.StateUnit))
	row("here", "%s", describeCopy(u))
	if s := u.Copy; s != nil {
		row("nodes", "%s on disk (%s), %s changes wait for the disk (%s)", thousands(s.Nodes), byteCount(s.UsedBytes), thousands(s.WaitingNodes), byteCount(s.WaitingBytes))
		row("clock", "%s", s.Clock.UTC().Format(time.RFC3339))
		for i, timer := range u.Timers {
			row(map[bool]string{true: "timers"}[i == 0], "%s at %s", firstLine(timer.Key, 60), timer.Due.Format(time.RFC3339))
		}
	}
	return t.Flush()
}

// describeCopy says what this machine has of a unit.
func describeCopy(u *shownUnit) string {
	s := u.Copy
	switch {
	case s == nil:
		return "nothing"
	case s.Open:
		return fmt.Sprintf("the unit, open, up to note %d", s.Last)
	case s.Refused != "":
		return "a copy that cannot follow the owner: " + s.Refused
	case s.Following:
		return fmt.Sprintf("a copy that follows the owner, up to note %d, %s behind", s.Last, thousands(s.Lag))
	}
	return fmt.Sprintf("a copy, not open, up to note %d", s.Last)
}
