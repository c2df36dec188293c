package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/script"
)

type tailCommand struct {
	Table string `arg:"" help:"Name of the table."`
	dataFlags
	Where  string `placeholder:"SQL" help:"Print only rows for which this condition is true."`
	Lua    string `type:"path" placeholder:"FILE" help:"Pass each row through this script, and print its result."`
	Since  string `placeholder:"TIME" help:"Begin with stored rows of this event time or later: 5m or 2d before now, or 2026-11-22T09:00:00Z."`
	Limit  int    `placeholder:"N" help:"End after this number of rows."`
	Format string `enum:"table,ndjson," default:"" help:"table or ndjson (default: table on a terminal, ndjson elsewhere)."`
}

func (tailCommand) Help() string {
	return `Prints each row that a running engine appends to a table of the event store, once and in order, until
Ctrl+C or the end of the engine.

With --since it begins with the stored rows of that event time or later, at most the newest 10,000.

A script works as in a pipeline: main(row) returns the row to print, changed or not, another table, or nil
to skip the row. If the script fails, the row goes to standard error with the reason.

A slow reader does not delay the engine: the command skips rows that have moved to files meanwhile, and
reports this on standard error.

Examples:
  perigee tail events
  perigee tail events --where "event = 'error' AND user = 7" --since 5m
  perigee tail events --lua large.lua --limit 10 --format ndjson | jq .`
}

func (t *tailCommand) Run(c *console) error {
	data, _, err := t.locate(c)
	if err != nil {
		return err
	}
	q, err := t.request()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &rowPrinter{err: c.err, limit: t.Limit, print: func(rows [][]byte) error { return printLines(c.out, rows) }}
	if t.Format == "table" || t.Format == "" && terminal.Is(c.out) {
		p.print = (&rowTable{out: c.out}).print
	}
	if t.Lua != "" {
		if p.script, err = loadFilter(ctx, c, t.Lua); err != nil {
			return err
		}
		defer p.script.Close()
	}
	begun := false
	err = eventservice.Tail(ctx, data, q, func(b *catalog.TailBatch) error {
		if !begun {
			begun = true
			fmt.Fprintf(c.err, "following table %s, data folder: %s\n", t.Table, data)
		}
		return p.add(ctx, b)
	})
	switch {
	case errors.Is(err, errRowLimitReached) || ctx.Err() != nil:
		return nil
	case err == nil:
		fmt.Fprintln(c.err, "the engine has ended")
	}
	return err
}

func (t *tailCommand) request() (catalog.TailRequest, error) {
	q := catalog.TailRequest{Table: t.Table, Where: t.Where}
	if t.Limit < 0 {
		return q, usageError("--limit must not be negative")
	}
	if t.Since != "" {
		since, err := parseTime(t.Since, time.Now())
		if err != nil {
			return q, usageError("--since: " + err.Error())
		}
		q.Since = since
	}
	return q, nil
}

// loadFilter loads the script of --lua.
func loadFilter(ctx context.Context, c *console, file string) (script.Script, error) {
	code, err := (&evalCommand{Script: file}).code()
	if err != nil {
		return nil, err
	}
	loaded, err := languages()[0].Load(ctx, code, script.Options{
		Sinks: []script.Sink{{Name: "stdout"}}, Log: slog.New(slog.NewTextHandler(c.err, nil)),
	})
	return loaded, engine.ScriptError(err, code)
}

// errRowLimitReached ends a tail that has printed its last row.
var errRowLimitReached = errors.New("row limit reached")

// A rowPrinter prints the batches of a tail.
type rowPrinter struct {
	err    io.Writer
	limit  int           // maximum number of rows; 0 is no limit
	script script.Script // nil without --lua
	print  func(rows [][]byte) error

	printed int
	result  event.Result
}

// add prints the rows of a batch.
func (p *rowPrinter) add(ctx context.Context, b *catalog.TailBatch) error {
	if b.Skipped {
		fmt.Fprintln(p.err, "rows were skipped: the table grows faster than they are read")
	}
	rows := bytes.Split(bytes.TrimSuffix(b.Rows, []byte{'\n'}), []byte{'\n'})
	if len(b.Rows) == 0 {
		return nil
	}
	if p.script != nil {
		var err error
		if rows, err = p.runScript(ctx, rows); err != nil {
			return err
		}
	}
	atLimit := p.limit > 0 && len(rows) >= p.limit-p.printed
	if atLimit {
		rows = rows[:p.limit-p.printed]
	}
	p.printed += len(rows)
	if err := p.print(rows); err != nil {
		return err
	}
	if atLimit {
		return errRowLimitReached
	}
	return nil
}

// runScript returns the results of the script for rows.
func (p *rowPrinter) runScript(ctx context.Context, rows [][]byte) (passed [][]byte, err error) {
	var batch event.Batch
	for _, row := range rows {
		batch.Append(row)
	}
	batch.Range.Count = uint64(batch.Len())
	p.result.Outputs = make([]event.Output, 1)
	err = script.RunAll(ctx, p.script, &batch, &p.result, 0, func(*event.Batch, *script.LimitError) error {
		out := &p.result.Outputs[0]
		for i := range out.Len() {
			passed = append(passed, slices.Clone(out.Doc(i)))
		}
		for _, dead := range p.result.Dead {
			fmt.Fprintf(p.err, "row %s: %s\n", firstLine(string(rows[dead.Position]), 100), indentLines(dead.Error))
		}
		return nil
	})
	return passed, err
}

// printLines prints rows unchanged.
func printLines(out io.Writer, rows [][]byte) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := out.Write(append(bytes.Join(rows, []byte{'\n'}), '\n'))
	return err
}

// A rowTable prints rows in columns, which grow with their cells. It prints a header whenever
// the names of the columns change.
type rowTable struct {
	out    io.Writer
	names  []string
	widths []int
}

const cellMax = 60 // characters

func (t *rowTable) print(rows [][]byte) error {
	var text strings.Builder
	var run [][]string // cells of rows with the same columns
	for _, row := range rows {
		names, cells, err := parseRow(row)
		if err != nil {
			return err
		}
		if !slices.Equal(names, t.names) {
			t.write(&text, run)
			t.names, t.widths, run = names, make([]int, len(names)), [][]string{names}
		}
		run = append(run, cells)
	}
	t.write(&text, run)
	_, err := io.WriteString(t.out, text.String())
	return err
}

func (t *rowTable) write(text *strings.Builder, rows [][]string) {
	for _, cells := range rows {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range rows {
		var line strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&line, "%-*s  ", t.widths[i], cell)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// parseRow returns the names and values of a JSON object, escaped and shortened to cellMax.
func parseRow(row []byte) (names, cells []string, err error) {
	decoder := json.NewDecoder(bytes.NewReader(row))
	if _, err = decoder.Token(); err != nil {
		return nil, nil, err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, nil, err
		}
		cell := string(value)
		var text *string
		if json.Unmarshal(value, &text) == nil { // a string, or null
			cell = ""
			if text != nil {
				cell = *text
			}
		}
		names, cells = append(names, firstLine(fmt.Sprint(name), cellMax)), append(cells, firstLine(cell, cellMax))
	}
	return names, cells, nil
}
