package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/terminal"
)

// Exit codes of diff, which are those of diff(1).
const (
	exitDifferent = 1
	exitNoResult  = 2
)

type diffCommand struct {
	Old string `arg:"" help:"The version before: a file, REVISION:PATH of git, an address, or running."`
	New string `arg:"" help:"The version after."`
	storedEvents
	Config   string   `placeholder:"FILE" help:"Configuration of the pipeline that the script is of (default: pipeline.yaml, if it exists); none compares documents only."`
	Pipeline string   `placeholder:"NAME" help:"The pipeline, if the configuration has several."`
	Data     string   `type:"path" placeholder:"DIR" help:"Use this data folder instead of the one in the configuration."`
	Allow    []string `placeholder:"HOST" sep:"none" help:"Allow a host for code, in addition to the allow list of the configuration. May be repeated."`
	Format   string   `enum:"text,json,html" default:"text" help:"text, json, or html: one page that needs no other file."`
}

func (diffCommand) Help() string {
	return `Runs two versions of a script on the same events and shows how the results differ, by kind: fields that
changed, appeared, disappeared or have another type; events that are now dropped or dead; further rows.
Each kind has its number of events and a few examples, the old version on the left. Time and memory
follow. Nothing is written to any sink or data folder.

The versions run in the pipeline of the configuration, with its limits and computed columns, and the rows
are compared as its sinks store them, column by column. Both see the same time. A difference in fields
that no column has is "stored as before". Without a configuration the documents are compared.

A version is a file, an address such as https://example.com/email.lua, or a revision of git:
HEAD~1:email.lua is the file one commit ago, with a path from the top of the repository, or from the
working folder if it begins with ./. Modules that it requires are of the same revision. The word running
is the version that the engine in the data folder runs now, even if its file has changed since.

The events are those of a file (- is standard input), of a source (--source, or --waiting for the
pipeline's own), the dead letters of the pipeline, or the rows of a table of the event store.

Exit code: 0 if no event differs, 1 if one does, 2 on failure.

Examples:
  perigee diff HEAD:email.lua email.lua events.ndjson
  perigee diff running email.lua --dead-letters
  perigee diff old.lua new.lua archive.ndjson.zst --config none
  perigee diff old.lua new.lua --source redis://127.0.0.1:6379/pepi_queue --events 10000
  perigee diff HEAD:email.lua email.lua --table events --last 100000
  perigee diff HEAD:email.lua email.lua events.ndjson --format html > report.html`
}

func (d *diffCommand) Run(c *console) error {
	report, err := d.compare(c)
	if err == nil {
		err = printDifferences(c, d.Format, report)
	}
	if err != nil {
		printError(c.err, err, "")
		return exitError(exitNoResult)
	}
	if !report.Same() {
		return exitError(exitDifferent)
	}
	return nil
}

// compare runs the events through both versions. An interrupt ends reading them, and not the
// report.
func (d *diffCommand) compare(c *console) (*compare.Report, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	conf, err := d.configuration(c)
	if err != nil {
		return nil, err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx := context.WithoutCancel(interrupted)
	var versions [2]*trial.Pipeline
	var sides [2]compare.Side
	for i, name := range []string{d.Old, d.New} {
		if versions[i], err = d.load(ctx, c, conf, name); err != nil {
			return nil, err
		}
		defer versions[i].Close()
		sides[i] = compare.Side{Name: name, Script: versions[i].Code.Name, Runner: versions[i]}
	}
	comparison := compare.New(sides[0], sides[1], versions[0].Compared())
	err = d.read(c, conf, versions[0].Config.Name, func(event []byte) error {
		if interrupted.Err() != nil {
			return errLimitReached
		}
		return comparison.Add(ctx, event)
	})
	if err != nil && !errors.Is(err, errLimitReached) {
		return nil, err
	}
	return comparison.Report(ctx)
}

// noConfig is the value of --config for comparing documents only.
const noConfig = "none"

// configuration returns the configuration of the pipeline, or one for documents only.
func (d *diffCommand) configuration(c *console) (*config.Config, error) {
	name := d.Config
	if name == "" {
		if _, err := os.Stat("pipeline.yaml"); err == nil {
			name = "pipeline.yaml"
		}
	}
	if name != "" && name != noConfig {
		return configFlags{Config: name, Data: d.Data, Allow: d.Allow}.load(context.Background(), c)
	}
	if d.Pipeline != "" || d.Waiting {
		return nil, event.WithHint(usageError("no configuration found for the pipeline"), "name one with --config FILE")
	}
	data, _, err := dataFlags{Data: d.Data}.locate(c)
	return &config.Config{Data: data, Pipelines: []config.Pipeline{{
		Name: "diff", Source: config.Source{Kind: "generate"}, Script: &config.Script{Text: "function main(event) return event end"}, Sinks: []config.Sink{{Kind: "stdout"}},
	}}}, err
}

// load loads a version of the script into the pipeline.
func (d *diffCommand) load(ctx context.Context, c *console, conf *config.Config, name string) (*trial.Pipeline, error) {
	code, err := d.codeOf(ctx, c, conf, name)
	if err != nil {
		return nil, err
	}
	return trial.Load(ctx, conf, d.Pipeline, engineOptions(c, d.Allow, nil), trial.Options{Code: &code, Documents: true, NoLog: true})
}

// printDifferences writes a report to standard output, with colours on a terminal.
func printDifferences(c *console, format string, report *compare.Report) error {
	var err error
	switch format {
	case "json":
		err = json.NewEncoder(c.out).Encode(report)
	case "html":
		err = report.WriteHTML(c.out)
	default:
		out, colour := coloured(c)
		err = report.WriteText(out, colour)
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// coloured returns where a text goes that escapes what came of events, and whether it may have
// colours: on a terminal, unless NO_COLOR is set.
func coloured(c *console) (out io.Writer, colour bool) {
	_, plain := c.lookup("NO_COLOR")
	if guard, ok := c.out.(*terminal.Writer); ok && !plain {
		return guard.Unwrap(), true // the guard would escape colours
	}
	return c.out, false
}

// check finds mistakes in the flags.
func (d *diffCommand) check() error {
	for _, name := range []string{d.Old, d.New} {
		if strings.HasSuffix(name, ".so") {
			return usageError(name + " is a Go plugin: diff compares scripts")
		}
	}
	return d.storedEvents.check()
}
