package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

type dlqCommand struct {
	List  dlqListCommand  `cmd:"" help:"List dead letters."`
	Show  dlqShowCommand  `cmd:"" help:"Show one dead letter with everything that is known of it."`
	Retry dlqRetryCommand `cmd:"" help:"Send dead letters through their pipelines again."`
	Purge dlqPurgeCommand `cmd:"" help:"Delete dead letters for good."`
}

// letterFlags say which letters are meant.
type letterFlags struct {
	Pipeline string `help:"Only those of this pipeline."`
	Stage    string `enum:"parse,script,column,sink," default:"" help:"Only those that failed there: parse, script, column or sink."`
	Sink     string `help:"Only those that this sink lacks."`
	Text     string `help:"Only those with this text in the error or the event."`
	Since    string `placeholder:"TIME" help:"Only those last kept then or later: 90m and 2d count back from now, or 2026-11-22T09:00:00Z."`
	Before   string `placeholder:"TIME" help:"Only those last kept earlier."`
}

// values are the flags on their way to whoever has the letters.
func (f letterFlags) values() (url.Values, error) {
	q := url.Values{}
	for name, value := range map[string]string{"pipeline": f.Pipeline, "stage": f.Stage, "sink": f.Sink, "text": f.Text} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, text := range map[string]string{"since": f.Since, "before": f.Before} {
		if text == "" {
			continue
		}
		at, err := moment(text, time.Now())
		if err != nil {
			return nil, usage(fmt.Sprintf("--%s: %v", name, err))
		}
		q.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
	return q, nil
}

// moment reads a time, or how long before now it was.
func moment(text string, now time.Time) (time.Time, error) {
	ago, unit := text, time.Duration(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		ago, unit = days+"h", 24
	}
	if d, err := time.ParseDuration(ago); err == nil {
		return now.Add(-d * unit), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 90m, 2d, 2026-11-22 or 2026-11-22T09:00:00Z", text)
}

// chosenFlags say which letters a command changes.
type chosenFlags struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Dead letters by their IDs, or by the first characters of them."`
	letterFlags
	All bool `help:"All of them."`
}

func (f chosenFlags) values() (url.Values, error) {
	q, err := f.letterFlags.values()
	switch {
	case err != nil:
		return nil, err
	case len(f.IDs) == 0 && len(q) == 0 && !f.All:
		return nil, usage("say which dead letters are meant: their IDs, a filter such as --stage, or --all")
	case f.All && (len(f.IDs) > 0 || len(q) > 0):
		return nil, usage("--all means all of them: leave it out, or the IDs and filters")
	}
	if len(f.IDs) > 0 {
		q["id"] = f.IDs
	}
	return q, nil
}

type dlqListCommand struct {
	storeFlags
	letterFlags
	Format string `enum:"table,json,ndjson" default:"table" help:"table, json or ndjson."`
}

func (dlqListCommand) Help() string {
	return `A dead letter is an event that could not be processed, or a row of it that one sink lacks, with its
position in the source, the stage and the error that stopped it, and the bytes as they were read.
json and ndjson hold all of it, the script's traceback too. Works beside a running engine. The same
letters are the table dead_letters in "perigee query".

Examples:
  perigee dlq list
  perigee dlq list --config pipeline.yaml --pipeline emails --stage script --since 2h
  perigee dlq list --format ndjson | jq -r .original`
}

func (l *dlqListCommand) Run(c *console) error {
	q, err := l.values()
	if err != nil {
		return err
	}
	q.Set("format", l.Format)
	return l.letters(c, "GET /dlq", q, c.out)
}

type dlqShowCommand struct {
	ID string `arg:"" help:"The dead letter's ID, or its first characters."`
	storeFlags
	Raw  bool `xor:"form" help:"Nothing but the event, byte by byte as it was read."`
	JSON bool `xor:"form" name:"json" help:"One JSON object."`
}

func (dlqShowCommand) Help() string {
	return `Shows where the event came from, what stopped it where, the script's version and traceback, when it
was kept and how often it was tried again, and the event.

Examples:
  perigee dlq show k3j9x0a2bq
  perigee dlq show k3j9 --raw | perigee eval mended.lua`
}

func (s *dlqShowCommand) Run(c *console) error {
	form := "text"
	if s.Raw {
		form = "raw"
	} else if s.JSON {
		form = "json"
	}
	return s.letters(c, "GET /dlq/show", url.Values{"id": {s.ID}, "format": {form}}, c.out)
}

type dlqRetryCommand struct {
	chosenFlags
	storeFlags
}

func (dlqRetryCommand) Help() string {
	return `Puts dead letters into the queue of their pipeline, which reads them like any other events, through the
script as it is now. Each lands once, whatever is killed when. One that fails again comes back under
the same ID. A row that one sink lacks goes to that sink only. Without a running engine the letters
wait for the next "perigee run".

Letters whose batch is not committed yet are left alone: their events are read again anyway.

Examples:
  perigee dlq retry k3j9x0a2bq
  perigee dlq retry --pipeline emails --stage script
  perigee dlq retry --all --config pipeline.yaml`
}

func (r *dlqRetryCommand) Run(c *console) error {
	q, err := r.values()
	if err != nil {
		return err
	}
	return r.letters(c, "POST /dlq/retry", q, c.out)
}

type dlqPurgeCommand struct {
	chosenFlags
	storeFlags
	Yes bool `short:"y" help:"Do not ask."`
}

func (dlqPurgeCommand) Help() string {
	return `Deletes dead letters, with the events in them. On a terminal it asks first; elsewhere it wants --yes.

Examples:
  perigee dlq purge k3j9x0a2bq
  perigee dlq purge --stage parse --before 30d --yes`
}

func (p *dlqPurgeCommand) Run(c *console) error {
	q, err := p.values()
	if err != nil {
		return err
	}
	if !p.Yes {
		var count bytes.Buffer
		if err := p.letters(c, "GET /dlq/count", q, &count); err != nil {
			return err
		}
		if err := c.confirm("Delete " + strings.TrimSpace(count.String()) + " for good?"); err != nil {
			return err
		}
	}
	return p.letters(c, "POST /dlq/purge", q, c.out)
}

// letters lets whoever has the dead letters answer: the engine that runs in the
// data folder, or, when none runs there, this process.
func (f storeFlags) letters(c *console, route string, q url.Values, out io.Writer) error {
	data, err := f.folder(c)
	if err != nil {
		return err
	}
	method, path, _ := strings.Cut(route, " ")
	if asked, err := askEngine(data, method, path, q, nil, out); asked || err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, deadletter.FileName)); err != nil {
		return event.WithHint(fmt.Errorf("no dead letters are kept: %w", err), "name the engine's data folder with --data, or its configuration with --config")
	}
	lock, err := own(data)
	if err != nil {
		return err
	}
	defer lock.Close()
	store, err := deadletter.Open(data)
	if err != nil {
		return err
	}
	return errors.Join(letterRoutes()[route](out, &desk{store: store}, q), store.Close())
}
