package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/eventstore/catalog"
)

type tableLakeCommand struct {
	Widen tableLakeWidenCommand `cmd:"" help:"Give a column its present type in the lake."`
}

type tableLakeWidenCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Column string `arg:"" help:"Column of the table whose type in the lake is narrower."`
	NoWait bool   `help:"Return at once; perigee table show shows the progress."`
	Cancel bool   `help:"Cancel the running change; the lake keeps the type."`
	Yes    bool   `short:"y" help:"Do not ask for confirmation."`
}

func (tableLakeWidenCommand) Help() string {
	return `Gives a column of a table the type in the table's lake that it has in the event store. Use it after a column
has become wider: until then the lake has its old type, and values that do not fit are in the column _rest of
the lake.

The engine writes all files of the table again, in the background, and puts them into the lake. One commit then
removes the old column, adds the new one under its name and exchanges the files. Other engines thus see all
values in the old type before, and all in the new one after it. Until that commit, the disk has all rows of the
table, also those that are only in the lake (the command asks for confirmation), and the lake may have an empty
column COLUMN_widened. Snapshots from before keep the old column.

Ctrl-C stops only the command. The engine continues, and so does the next one, even after kill -9. --cancel ends
the change, unless its commit was begun.

A table with files that another engine has written or compacted cannot be changed this way.

Examples:
  perigee table lake widen orders amount
  perigee table lake widen orders amount --no-wait && perigee table show orders
  perigee table lake widen orders amount --cancel`
}

func (w *tableLakeWidenCommand) Run(c *console) error {
	data, _, err := w.locate(c)
	if err != nil {
		return err
	}
	t, err := findTable(data, w.Table)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if w.Cancel {
		if _, err := eventservice.CancelWidenInLake(ctx, data, t.Name, w.Column); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "column %s of table %s keeps its type in the lake\n", w.Column, t.Name)
		printData(c.out, data)
		return nil
	}
	if l := t.Lake; l != nil && l.RemoteFiles > 0 && l.Widening == "" && !w.Yes {
		if err := c.confirm(fmt.Sprintf("%s of table %s with %s, which only the lake has, will be on this disk until the change is published. Continue?", countOf(l.RemoteFiles, "file"), t.Name, byteCount(uint64(l.RemoteBytes)))); err != nil {
			return err
		}
	}
	state, err := eventservice.WidenInLake(ctx, data, t.Name, w.Column)
	if err != nil {
		return err
	}
	a, err := w.open(c)
	if err != nil {
		return err
	}
	defer a.Close()
	_, err = a.Status(ctx)
	if errors.Is(err, admin.ErrNoEngine) || w.NoWait {
		fmt.Fprintf(c.out, "column %s of table %s will be widened in the lake by the engine; perigee table show %[2]s shows the progress\n", state.Widening, t.Name)
		printData(c.out, data)
		return nil
	}
	if err := w.wait(ctx, c, data, t.Name, state.Widening); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "column %s of table %s has its present type in the lake\n", state.Widening, t.Name)
	printData(c.out, data)
	return nil
}

// wait shows the progress until the lake has the column.
func (w *tableLakeWidenCommand) wait(ctx context.Context, c *console, data, table, column string) error {
	var text atomic.Value
	text.Store("rewriting files")
	hide := newDisplay(c.err).show(func(time.Duration) string { return text.Load().(string) })
	defer hide()
	for {
		t, err := findTable(data, table)
		switch {
		case err != nil:
			return err
		case t.Lake == nil || t.Lake.Widening != column:
			return nil
		}
		text.Store(widenText(t.Lake, len(t.Files)))
		select {
		case <-time.After(recomputeInterval):
		case <-ctx.Done():
			fmt.Fprintf(c.out, "the engine continues; perigee table show %s shows the progress, and perigee table lake widen %[1]s %s --cancel ends it\n", table, column)
			return exitError(128 + int(syscall.SIGINT))
		}
	}
}

// widenText describes the progress.
func widenText(l *catalog.LakeState, files int) string {
	text := fmt.Sprintf("rewriting files: %d of %s", l.WidenedFiles, countOf(files, "file"))
	if l.WidenedFiles >= files {
		text = "putting " + countOf(files, "file") + " into the lake"
	}
	if l.Error != "" {
		text += "; the last attempt failed: " + firstLine(l.Error, 100)
	}
	return text
}
