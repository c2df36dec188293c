package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

type tableRecomputeCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Column string `arg:"" help:"Computed column of the table."`
	NoWait bool   `help:"Return at once; perigee table show shows the progress."`
	Cancel bool   `help:"Cancel the running recompute of the column."`
}

func (tableRecomputeCommand) Help() string {
	return `Computes a column of the stored rows of a table. The configuration of the running engine must declare the
column below computed of the table. Use it for a new column, or after its function has changed; the
engine computes later rows when they arrive. The engine rewrites one file after the other in the
background. A query sees either the old or the new values of a file, and always all rows.

Ctrl-C ends the recompute, and so does --cancel from another terminal. Finished files keep the new values;
run the command again to compute all files. If the command stops in another way, the engine continues,
and so does the next one, even after kill -9.

A row for which the function fails becomes null. The command prints the number of these rows and the first
error. It does not recompute other columns that use this one.

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
	begin := eventservice.RecomputeColumn
	if r.Cancel {
		begin = eventservice.CancelRecompute
	}
	// An interrupt that ended the request would leave open whether the recompute has begun.
	state, err := begin(context.WithoutCancel(ctx), data, t.Name, r.Column)
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

// recomputeInterval is the time between two reads of the state of a recompute.
const recomputeInterval = 200 * time.Millisecond

// waitRecomputed shows the progress of a recompute until it has ended. ctx cancels it.
func waitRecomputed(ctx context.Context, c *console, data string, state catalog.Recompute) (catalog.Recompute, error) {
	var text atomic.Value
	text.Store(recomputeText(state))
	hide := newDisplay(c.err).show(func(time.Duration) string { return "the recompute " + text.Load().(string) })
	defer hide()
	for state.Ended.IsZero() {
		var err error
		select {
		case <-time.After(recomputeInterval):
			state, err = eventservice.RecomputeState(context.WithoutCancel(ctx), data, state)
		case <-ctx.Done():
			state, err = eventservice.CancelRecompute(context.WithoutCancel(ctx), data, state.Table, state.Column)
		}
		if err != nil {
			return state, err
		}
		if state.Idle {
			return state, event.WithHint(fmt.Errorf("the recompute waits: no running engine computes column %s of table %s", state.Column, state.Table),
				"start an engine whose configuration computes the column; the recompute then continues")
		}
		text.Store(recomputeText(state))
	}
	if state.Stopped {
		return state, fmt.Errorf("recompute %d of column %s of table %s %s", state.Number, state.Column, state.Table, recomputeText(state))
	}
	return state, nil
}

// recomputeText returns the progress of a recompute.
func recomputeText(r catalog.Recompute) (text string) {
	switch {
	case r.Stopped:
		return fmt.Sprintf("ended after %s: %s", countOf(int(r.Rows), "row"), r.Error)
	case !r.Ended.IsZero():
		text = fmt.Sprintf("is done: %s", countOf(int(r.Rows), "row"))
	default:
		text = fmt.Sprintf("is running: %d of %s, %s", r.Done, countOf(r.Files, "file"), countOf(int(r.Rows), "row"))
	}
	if r.Failed > 0 {
		text += fmt.Sprintf("; the function failed for %s, which became null; first error: %s", countOf(int(r.Failed), "row"), r.Error)
	}
	if r.InLog {
		text += "; rows in the log follow once they are in files"
	}
	if r.Idle {
		text += "; waiting for an engine whose configuration computes the column"
	}
	return text
}
