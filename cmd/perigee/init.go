package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/internal/scaffold"
)

type initCommand struct {
	Folder string `arg:"" optional:"" help:"Folder of the project; it is created if it does not exist (default: the working folder)."`
	Source string `placeholder:"KIND" help:"Kind of the source, such as redis (default file)."`
	Sink   string `placeholder:"KIND" help:"Kind of the sink, such as mysql (default eventstore)."`
	From   string `placeholder:"EVENTS" help:"Infer columns and types from these events: a file as for \"perigee inspect\", or - for standard input."`
}

func (initCommand) Help() string {
	return `Writes a project that runs unchanged: pipeline.yaml, a script, ten events, a test, definitions with which
an editor completes scripts and configuration, a README and .gitignore. Without flags it asks on a terminal.

With --from it reads events and infers from them the name of the table, its columns with types of the
sink's database, and the time and the name of the event. The project gets the first ten of them, and a test of
the first three.

It overwrites nothing: if one of the files exists, it writes none.

Examples:
  perigee init
  perigee init mails --source redis --sink postgres
  perigee init orders --from orders.ndjson.gz --sink mysql`
}

func (i *initCommand) Run(c *console) error {
	if i.Folder == "" && i.Source == "" && i.Sink == "" && i.From == "" && c.asks() {
		if err := i.ask(c); err != nil {
			return err
		}
	}
	i.Folder, i.Source, i.Sink = cmp.Or(i.Folder, "."), cmp.Or(i.Source, "file"), cmp.Or(i.Sink, defaultSink())
	p, err := i.project(c)
	if err != nil {
		return err
	}
	p.Schema = linked().Describe().Schema()
	if err := p.Write(i.Folder); err != nil {
		return err
	}
	files, err := p.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.Contains(f.Path, "/") {
			fmt.Fprintln(c.out, filepath.Join(i.Folder, f.Path))
		}
	}
	fmt.Fprintf(c.out, "%s: definitions for editors\n\nnext:\n", filepath.Join(i.Folder, ".perigee"))
	for _, command := range p.Commands(shellWord(filepath.Join(i.Folder, "pipeline.yaml"))) {
		fmt.Fprintln(c.out, "  "+command)
	}
	return nil
}

// defaultSink is the event store, which a build without cgo lacks.
func defaultSink() string {
	for _, k := range linked().Sinks {
		if k.Name == "eventstore" {
			return k.Name
		}
	}
	return "file"
}

// ask asks for what the flags say. An empty answer is the default.
func (i *initCommand) ask(c *console) error {
	answers := bufio.NewReader(c.in)
	for _, q := range []struct {
		question, otherwise string
		choices             []string
		answer              *string
	}{
		{"Folder", ".", nil, &i.Folder},
		{"File with events to begin with (empty: examples)", "", nil, &i.From},
		{"Source: " + strings.Join(scaffold.Sources(), ", "), "file", scaffold.Sources(), &i.Source},
		{"Sink: " + strings.Join(scaffold.Sinks(), ", "), defaultSink(), scaffold.Sinks(), &i.Sink},
	} {
		for *q.answer == "" {
			fmt.Fprintf(c.err, "%s [%s] ", q.question, q.otherwise)
			line, err := answers.ReadString('\n')
			if err != nil && line == "" {
				return fmt.Errorf("no answer: %w", err)
			}
			*q.answer = cmp.Or(strings.TrimSpace(line), q.otherwise)
			if q.choices != nil && !slices.Contains(q.choices, *q.answer) {
				*q.answer = ""
			}
			if q.otherwise == "" {
				break
			}
		}
	}
	return nil
}

// project returns the example, or a project for the events of --from.
func (i *initCommand) project(c *console) (*scaffold.Project, error) {
	if i.From == "" {
		return scaffold.Example(i.Source, i.Sink), nil
	}
	flags := eventFlags{File: i.From}
	var first [][]byte
	x, err := flags.inspect(c, func(event []byte) { first = keepEvent(first, event) })
	if err != nil {
		return nil, err
	}
	report := x.Report()
	if len(first) == 0 {
		return nil, noEvents(i.From, report)
	}
	return scaffold.From(i.name(), i.Source, i.Sink, report, first), nil
}

// eventBytesMax is the size of an event beyond which a project does not keep it.
const eventBytesMax = 64 << 10

// keepEvent adds an event to the first ones of a project.
func keepEvent(first [][]byte, event []byte) [][]byte {
	var line bytes.Buffer
	if len(first) == scaffold.EventsKept || len(event) > eventBytesMax || event[0] != '{' || json.Compact(&line, event) != nil {
		return first
	}
	return append(first, line.Bytes())
}

func noEvents(from string, r *inspect.Report) error {
	if from == "-" {
		from = "standard input"
	}
	if len(r.Rejections) == 0 {
		return fmt.Errorf("%s has no event", from)
	}
	first := r.Rejections[0]
	return event.WithHint(fmt.Errorf("%s has no event: %s", from, first.Reason), cmp.Or(first.Hint, "an event is a JSON object"))
}

// name is the name of the file of --from without what follows the first dot, or that of the folder.
func (i *initCommand) name() string {
	name, _, _ := strings.Cut(filepath.Base(i.From), ".")
	if i.From == "-" || name == "" || name == "events" {
		if folder, err := filepath.Abs(i.Folder); err == nil {
			name = filepath.Base(folder)
		}
	}
	return name
}

// shellWord quotes a text for a shell if it needs that.
func shellWord(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+", r)
	}) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}
