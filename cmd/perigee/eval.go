package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	nodelua "github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/source/format"
)

type evalCommand struct {
	Script   string   `arg:"" optional:"" help:"File with the script."`
	Code     string   `short:"e" placeholder:"CODE" help:"The script itself, instead of a file."`
	Nodes    string   `placeholder:"FOLDER" help:"Node database for require \"nodedb\"; it is created if it does not exist."`
	Config   string   `type:"path" placeholder:"FILE" help:"Configuration with the state of a pipeline: the script sees a copy of it, and changes nothing."`
	Pipeline string   `placeholder:"NAME" help:"With --config: pipeline whose state it is; required if several have one."`
	Unit     string   `placeholder:"UNIT" help:"With --config: unit of the state; required if it has several."`
	Sinks    []string `name:"sink" placeholder:"NAME" help:"Sink that the script may route to; may be repeated."`

	Format    string   `enum:"json,lines,csv,logfmt" default:"json" help:"Format of standard input: json, lines (any text), csv or logfmt."`
	Separator string   `placeholder:"CHARACTER" help:"With --format csv: the character between fields, or tab (default: a comma)."`
	Columns   []string `placeholder:"NAME" help:"With --format csv: names of the fields, separated by commas (default: from the first line)."`
}

func (evalCommand) Help() string {
	return `Runs a script on events from standard input. Each line is one event: a JSON object, or a record in the
format that --format names. The command writes the results of the script to standard output, one document
per line. A line is refused if it is not in the format or the script fails on it: it goes to standard
error with its number and the reason, and the others continue. The last line on standard error counts
the events that were read, output, dropped by the script and refused.

Use --sink to name the sinks that the script may route to with to("NAME", event). Routed rows are printed
after the sink's name.

With --nodes the script keeps state in a node database: local nodedb = require "nodedb". The changes of an
event are durable before its result is printed. Open transactions and locks end with their event.

With --config the script sees a copy of the state of a pipeline, as it is while the engine is stopped, or an
empty state if there is none yet; the copy ends with the command.

If CODE defines no main function, it becomes the body of function main(event).

Exit code: 0 if every line was accepted, 1 if one was refused or the script has a fault.

Examples:
  perigee eval email.lua < in.ndjson > out.ndjson
  perigee eval -e 'event.domain = event.email:match("@(.+)$") return event' < in.ndjson
  perigee eval -e 'if event.event_name == "click" then return event end return nil' < in.ndjson
  perigee eval --nodes state -e 'event.nth = require("nodedb").incr("^seen", event.user, 1) return event' < in.ndjson
  perigee eval --format lines -e 'event.words = select(2, event.line:gsub("%S+", "")) return event' < access.log
  perigee eval --sink audit -e 'return to("audit", event), event' < in.ndjson`
}

func (e *evalCommand) Run(c *console) (err error) {
	code, err := e.code()
	if err != nil {
		return err
	}
	as, err := format.New(format.Settings{Format: e.Format, Separator: e.Separator, Columns: e.Columns})
	if err != nil {
		return err
	}
	ctx := context.Background()
	sinks := e.sinks()
	nodes, err := e.openNodes()
	if err != nil {
		return err
	}
	if nodes != nil {
		defer func() {
			if closed := nodes.Close(); err == nil {
				err = closed
			}
		}()
	}
	opts := script.Options{Sinks: sinks, Log: slog.New(slog.NewTextHandler(c.err, nil))}
	if nodes != nil {
		opts.Extension = nodelua.NewExtension(nodes)
	}
	var scratch *state.Scratch
	if e.Config != "" {
		if scratch, err = e.copyState(ctx, c); err != nil {
			return err
		}
		defer func() {
			if closed := scratch.Close(); err == nil {
				err = closed
			}
		}()
		opts.Extension = nodelua.ForState()
	}
	loaded, err := languages()[0].Load(ctx, code, opts)
	if err != nil {
		return engine.ScriptError(err, code)
	}
	defer loaded.Close()
	running := loaded
	if scratch != nil {
		running = scratch.Wrap(loaded)
	}
	v := evaluation{
		script: running, lines: newEventReader(c.in, as), out: bufio.NewWriterSize(c.out, 64<<10), err: c.err, sinks: sinks, nodes: nodes,
	}
	v.result.Outputs = make([]event.Output, len(sinks))
	err = v.runAll(ctx)
	if flushed := v.out.Flush(); err == nil {
		err = flushed
	}
	fmt.Fprintf(c.err, "%d read, %d out, %d dropped, %d refused\n", v.counts.read, v.counts.out, v.counts.dropped, v.counts.refused)
	if err == nil && v.counts.refused > 0 {
		return exitError(exitFailure)
	}
	return err
}

// copyState returns a copy of the state of the pipeline.
func (e *evalCommand) copyState(ctx context.Context, c *console) (_ *state.Scratch, err error) {
	if e.Nodes != "" {
		return nil, usageError("--config and --nodes exclude each other")
	}
	flags := configFlags{Config: e.Config}
	var scratch *state.Scratch
	err = flags.withoutEngine(ctx, c, func(a *engine.Assembly) error {
		of, err := e.findState(a)
		if err != nil {
			return err
		}
		scratch = state.NewScratch(time.Now, of.EventTime)
		units, err := of.Copies()
		switch {
		case err != nil:
			return err
		case e.Unit == "" && len(units) > 1:
			return event.WithHint(fmt.Errorf("state %s has %d units", of.Name, len(units)), "name one with --unit: "+strings.Join(units, ", "))
		case e.Unit == "" && len(units) == 1:
			e.Unit = units[0]
		case !slices.Contains(units, e.Unit):
			fmt.Fprintf(c.err, "state %s has no such unit on this machine: the script begins with an empty state\n", of.Name)
			return nil
		}
		return scratch.CopyFrom(ctx, of, e.Unit)
	})
	if err != nil && scratch != nil {
		err = errors.Join(err, scratch.Close())
	}
	return scratch, err
}

func (e *evalCommand) findState(a *engine.Assembly) (found *state.Config, err error) {
	for _, p := range a.AdminPipelines() {
		switch {
		case p.State == nil || e.Pipeline != "" && p.Name != e.Pipeline:
		case found != nil:
			return nil, event.WithHint(errors.New("several pipelines have a state"), "name one with --pipeline")
		default:
			found = p.State
		}
	}
	if found == nil {
		return nil, event.WithHint(errors.New("the configuration has no such pipeline with a state"), "give the pipeline the key state, or leave out --config")
	}
	return found, nil
}

// openNodes opens the node database of --nodes, if given.
func (e *evalCommand) openNodes() (*nodedb.Store, error) {
	if e.Nodes == "" {
		return nil, nil
	}
	return nodedb.Open(e.Nodes, nodedb.Options{})
}

// sinks returns standard output for rows that are not routed, and the named sinks.
func (e *evalCommand) sinks() []script.Sink {
	all := []script.Sink{{Name: "stdout"}}
	for _, name := range e.Sinks {
		all = append(all, script.Sink{Name: name, Routed: true})
	}
	return all
}

// code returns the script.
func (e *evalCommand) code() (script.Code, error) {
	switch {
	case e.Script != "" && e.Code != "":
		return script.Code{}, usageError("a script is given as a file and with -e: use one of them")
	case e.Code != "" && strings.Contains(e.Code, "main"):
		return script.Code{Name: "-e", Text: []byte(e.Code)}, nil
	case e.Code != "":
		return script.Code{Name: "-e", Text: []byte("function main(event) " + e.Code + "\nend")}, nil
	case e.Script == "":
		return script.Code{}, usageError("no script is given: name a file, or pass code with -e")
	}
	text, err := os.ReadFile(e.Script)
	if err != nil {
		return script.Code{}, fmt.Errorf("read script: %w", err)
	}
	return script.Code{Name: e.Script, Text: text, Files: script.Folder(filepath.Dir(e.Script))}, nil
}

// An evaluation passes lines through a script.
type evaluation struct {
	script script.Script
	lines  *eventReader
	sinks  []script.Sink
	out    *bufio.Writer
	err    io.Writer
	nodes  *nodedb.Store                             // nil without --nodes
	counts struct{ read, out, dropped, refused int } // events

	batch  event.Batch
	result event.Result
}

func (v *evaluation) runAll(ctx context.Context) error {
	for {
		switch err := v.lines.readBatch(&v.batch); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("read standard input: %w", err)
		}
		if err := v.runBatch(ctx, v.batch, v.lines.numbers); err != nil {
			return err
		}
		if err := v.out.Flush(); err != nil {
			return fmt.Errorf("write standard output: %w", err)
		}
	}
}

// runBatch runs the script on events from the lines with these numbers.
func (v *evaluation) runBatch(ctx context.Context, batch event.Batch, numbers []int) error {
	v.counts.read += batch.Len()
	err := script.RunAll(ctx, v.script, &batch, &v.result, 0, func(part *event.Batch, _ *script.LimitError) error {
		if v.nodes != nil {
			if err := v.nodes.Sync(); err != nil {
				return err
			}
		}
		v.print(part, numbers)
		numbers = numbers[part.Len():]
		return nil
	})
	if err != nil {
		return fmt.Errorf("run script on line %d: %w", numbers[0], err)
	}
	return nil
}

// print writes the results of a batch. A bufio.Writer keeps its first error for Flush.
func (v *evaluation) print(batch *event.Batch, numbers []int) {
	next := make([]int, len(v.sinks)) // row of each sink
	for i := range v.result.Ran {
		printed := false
		for s := range v.sinks {
			first := next[s]
			next[s] = v.printRows(i, s, first)
			printed = printed || next[s] > first
		}
		if printed {
			v.counts.out++
		}
	}
	v.counts.dropped += v.result.Dropped
	v.counts.refused += len(v.result.Dead)
	for _, dead := range v.result.Dead {
		if dead.Stage == "parse" {
			v.lines.decoder.Explain(&dead)
		}
		fmt.Fprintf(v.err, "line %d: %s: %s\n", numbers[dead.Position-batch.Range.First], dead.Stage, indentLines(dead.Error))
	}
}

// printRows writes the rows of event i in sink s, beginning with row. It returns the first row
// of the next event.
func (v *evaluation) printRows(i, s, row int) int {
	output := &v.result.Outputs[s]
	for ; row < output.Len() && int(output.From[row]) == i; row++ {
		if v.sinks[s].Routed {
			v.out.WriteString(v.sinks[s].Name + ": ")
		}
		v.out.Write(output.Doc(row))
		v.out.WriteByte('\n')
	}
	return row
}
