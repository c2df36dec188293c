package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/script"
)

type tapCommand struct {
	Pipeline string `arg:"" optional:"" help:"Name of the pipeline; may be left out if there is only one."`
	dataFlags
	At     []tap.Point `placeholder:"POINT" enum:"source,output,sink,dead" help:"Where to look, separated by commas: source (events as read), output (rows of the script), sink (rows that a sink has committed), dead (dead letters); default is everywhere."`
	Sink   string      `placeholder:"NAME" help:"Show only what is for this sink."`
	Where  string      `placeholder:"SQL" help:"Print only events for which this condition is true; the JSON of the event is in the column event."`
	Lua    string      `type:"path" placeholder:"FILE" help:"Pass each event through this script: main returns what to print, or nil to skip the event."`
	Rate   float64     `default:"10" help:"Maximum events per second for each point and sink; 0 means 10,000, the highest rate."`
	Count  int         `placeholder:"N" help:"End after this number of events."`
	Format string      `enum:"text,ndjson," default:"" help:"text or ndjson (default: text on a terminal, ndjson elsewhere)."`
}

func (tapCommand) Help() string {
	return `Shows events live as they flow through a pipeline of a running engine: as the source has them, as the
script returns them, as a sink has committed them, and those that became dead letters, with their errors. It
takes a sample; with --rate 0 it shows as many as this command can take, at most 10,000 in a second.

The engine does not wait for this command, and pays nothing while nobody looks. Nothing is stored or changed.

The condition of --where is over the columns time, point, sink, partition, position, event (JSON), text, stage
and error, in the SQL of perigee query. This command evaluates it in a process of its own.

With --where or --lua, the rate applies to what they let through; --lua gets what --where lets through.

Each line of ndjson has the keys time, point, sink, partition, position and event; text in place of event
if it is no JSON; error, stage and traceback for dead letters; skipped, the number of events that were left
out since the line before.

Examples:
  perigee tap emails
  perigee tap emails --at dead
  perigee tap emails --at source,sink --rate 1 --count 10
  perigee tap emails --at source --where "(event ->> 'email') LIKE '%@example.com'"
  perigee tap emails --at output --lua large.lua --format ndjson | jq .event`
}

func (t *tapCommand) Run(c *console) error {
	if t.Rate < 0 || t.Count < 0 {
		return usageError("--rate and --count must not be negative")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &tapPrinter{c: c, text: t.Format == "text" || t.Format == "" && terminal.Is(c.out)}
	q := admin.TapRequest{Pipeline: t.Pipeline, Request: tap.Request{Points: t.At, Sink: t.Sink, Rate: t.Rate}}
	if t.Lua != "" {
		filter, err := loadFilter(ctx, c, t.Lua)
		if err != nil {
			return err
		}
		defer filter.Close()
		p.filter = &eventFilter{script: filter, err: c.err}
	}
	var where *eventservice.Filter
	if t.Where != "" {
		var err error
		if where, err = eventservice.NewFilter(ctx, t.Where); err != nil {
			return err
		}
		defer where.Close()
	}
	if t.Lua != "" || t.Where != "" {
		p.pace, q.Rate = tap.NewPace(t.Rate), 0
	}
	err := t.use(c, func(_ context.Context, a *admin.Admin) error {
		open := func(ctx context.Context) iter.Seq2[tap.Event, error] { return a.Tap(ctx, q) }
		events := open(ctx)
		if where != nil {
			events = where.Events(ctx, open)
		}
		for e, err := range events {
			if errors.Is(err, eventservice.ErrNotCondition) {
				return usageError("--where takes a single SQL condition")
			}
			if err != nil {
				return err
			}
			if err := p.print(ctx, &e); err != nil || t.Count > 0 && p.printed == t.Count {
				return err
			}
		}
		if ctx.Err() == nil {
			fmt.Fprintln(c.err, "the pipeline has ended")
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A tapPrinter prints events of a tap.
type tapPrinter struct {
	c       *console
	text    bool
	filter  *eventFilter // nil without --lua
	pace    *tap.Pace    // of what --where and --lua let through; nil without both
	printed int
}

func (p *tapPrinter) print(ctx context.Context, e *tap.Event) error {
	if p.filter != nil {
		passes, err := p.filter.pass(ctx, e)
		if err != nil || !passes {
			return err
		}
	}
	if p.pace != nil {
		if p.pace.Allow(e.Point, e.Sink, 1) == 0 {
			return nil
		}
		e.Skipped = 0 // of the filters' input
	}
	p.printed++
	if p.text {
		return p.printText(e)
	}
	return json.NewEncoder(p.c.out).Encode(e)
}

// printText prints an event as a line about it, and the event below.
func (p *tapPrinter) printText(e *tap.Event) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-6s", e.Time.UTC().Format("15:04:05.000"), e.Point)
	if e.Sink != "" {
		fmt.Fprintf(&b, " %s", e.Sink)
	}
	fmt.Fprintf(&b, "  %s:%d", terminal.EscapeLine(e.Partition), e.Position)
	if e.Skipped > 0 {
		fmt.Fprintf(&b, "  (%s skipped)", thousands(e.Skipped))
	}
	b.WriteByte('\n')
	if e.Error != "" {
		fmt.Fprintf(&b, "  %s: %s\n", e.Stage, indentLines(terminal.Escape(e.Error)))
	}
	if e.Traceback != "" {
		fmt.Fprintf(&b, "  %s\n", indentLines(terminal.Escape(e.Traceback)))
	}
	if e.Event != nil {
		b.Write(indentJSON(e.Event))
		b.WriteByte('\n')
	} else {
		fmt.Fprintf(&b, "%s\n", terminal.Escape(e.Text))
	}
	_, err := io.WriteString(p.c.out, b.String())
	return err
}

// An eventFilter passes events through a script.
type eventFilter struct {
	script script.Script
	err    io.Writer
	result event.Result
}

// pass runs the script on an event, and makes its first row the event. It reports whether there is
// one. Events on which the script fails go to standard error.
func (f *eventFilter) pass(ctx context.Context, e *tap.Event) (bool, error) {
	if e.Event == nil {
		return false, nil
	}
	var in event.Batch
	in.Append(e.Event)
	in.Range.Count = 1
	f.result.Outputs = make([]event.Output, 1)
	passes := false
	err := script.RunAll(ctx, f.script, &in, &f.result, 0, func(*event.Batch, *script.LimitError) error {
		if out := &f.result.Outputs[0]; out.Len() > 0 {
			e.Event, passes = bytes.Clone(out.Doc(0)), true
		}
		for _, dead := range f.result.Dead {
			fmt.Fprintf(f.err, "event %s:%d: %s\n", terminal.EscapeLine(e.Partition), e.Position, indentLines(dead.Error))
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return false, nil
	}
	return passes, err
}
