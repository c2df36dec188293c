package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/event"
)

type tableRecomputeCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Column string `arg:"" help:"Computed column of the table."`
	NoWait bool   `help:"Return at once; perigee table show tells how far it is."`
	Cancel bool   `help:"End the recompute of the column that is under way."`
}

func (tableRecomputeCommand) Help() string {
	return `Computes a column that the configuration of the running engine has below computed of the table, for the
rows that the table has now: a new column, or one whose function has changed. Rows that come later are
computed as they come. The engine rewrites one file after the other in the background. A query sees,
of each file, the values before or the new ones, and always all rows.

Ctrl-C ends the recompute, and --cancel does from another terminal: files that are done keep the new
values, and the command computes all files when it is run again. If the command is stopped in another
way, the engine goes on, and so does the next one, also after kill -9.

A row for which the function fails becomes null; the command tells how many did, and why the first one
did. Other computed columns that use this one are not computed again.

Examples:
  perigee table recompute orders total
  perigee table recompute orders total --no-wait && perigee table show orders
  perigee table recompute orders total --cancel`
}

func (r *tableRecomputeCommand) Run(c *console) error {
	data, _, err := r.locate(c)
	if err != nil {
		return err
	}
	t, err := findTable(data, r.Table)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	begin := eventsql.RecomputeColumn
	if r.Cancel {
		begin = eventsql.CancelRecompute
	}
	state, err := begin(ctx, data, t.Name, r.Column)
	if err != nil {
		return err
	}
	if !r.NoWait && !r.Cancel {
		if state, err = waitRecomputed(ctx, c, data, state); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "recompute %d of column %s of table %s %s\n", state.Number, state.Column, state.Table, recomputeText(state))
	printData(c.out, data)
	return nil
}

// recomputeInterval is the time between two looks at a recompute.
const recomputeInterval = 200 * time.Millisecond

// waitRecomputed shows how far a recompute is until it has ended. ctx cancels it.
func waitRecomputed(ctx context.Context, c *console, data string, state eventsql.Recompute) (eventsql.Recompute, error) {
	var text atomic.Value
	text.Store(recomputeText(state))
	hide := newDisplay(c.err).show(func(time.Duration) string { return "the recompute " + text.Load().(string) })
	defer hide()
	for state.Ended == nil {
		var err error
		select {
		case <-time.After(recomputeInterval):
			state, err = eventsql.RecomputeState(context.WithoutCancel(ctx), data, state)
		case <-ctx.Done():
			state, err = eventsql.CancelRecompute(context.WithoutCancel(ctx), data, state.Table, state.Column)
		}
		if err != nil {
			return state, err
		}
		if state.Idle {
			return state, event.WithHint(fmt.Errorf("the recompute waits: no engine runs whose configuration computes column %s of table %s", state.Column, state.Table),
				"start the engine with it: the recompute goes on")
		}
		text.Store(recomputeText(state))
	}
	if state.Stopped {
		return state, fmt.Errorf("recompute %d of column %s of table %s %s", state.Number, state.Column, state.Table, recomputeText(state))
	}
	return state, nil
}

// recomputeText says how far a recompute is.
func recomputeText(r eventsql.Recompute) (text string) {
	switch {
	case r.Stopped:
		return fmt.Sprintf("has ended after %s: %s", countOf(int(r.Rows), "row"), r.Error)
	case r.Ended != nil:
		text = fmt.Sprintf("is done: %s", countOf(int(r.Rows), "row"))
	default:
		text = fmt.Sprintf("is under way: %d of %s, %s", r.Done, countOf(r.Files, "file"), countOf(int(r.Rows), "row"))
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", of which %d are null because the function failed; the first: %s", r.Failed, r.Error)
	}
	if r.InLog {
		text += "; rows in the log follow once they are in files"
	}
	if r.Idle {
		text += "; it waits for an engine whose configuration computes the column"
	}
	return text
}
