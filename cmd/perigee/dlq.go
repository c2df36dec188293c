package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perigeedb/perigee/admin"
)

type dlqCommand struct {
	List  dlqListCommand  `cmd:"" help:"List dead letters."`
	Show  dlqShowCommand  `cmd:"" help:"Show one dead letter in full."`
	Retry dlqRetryCommand `cmd:"" help:"Send dead letters through their pipelines again."`
	Purge dlqPurgeCommand `cmd:"" help:"Delete dead letters."`
}

// filterFlags select dead letters.
type filterFlags struct {
	Pipeline string `help:"Select dead letters of this pipeline."`
	Stage    string `enum:"parse,script,column,sink,damaged," default:"" help:"Select dead letters of this stage: parse, script, column, sink or damaged."`
	Sink     string `help:"Select rows that this sink rejected."`
	Text     string `help:"Select dead letters with this text in the error or the event."`
	Since    string `placeholder:"TIME" help:"Select dead letters last stored at this time or later: 90m or 2d before now, or 2026-11-22T09:00:00Z."`
	Before   string `placeholder:"TIME" help:"Select dead letters last stored before this time."`
}

func (f filterFlags) filter() (admin.Filter, error) {
	filter := admin.Filter{Pipeline: f.Pipeline, Stage: f.Stage, Sink: f.Sink, Text: f.Text}
	for _, flag := range []struct {
		name, text string
		at         *time.Time
	}{{"since", f.Since, &filter.Since}, {"before", f.Before, &filter.Before}} {
		if flag.text == "" {
			continue
		}
		var err error
		if *flag.at, err = parseTime(flag.text, time.Now()); err != nil {
			return filter, usageError(fmt.Sprintf("--%s: %v", flag.name, err))
		}
	}
	return filter, nil
}

// parseTime reads a time, or a duration before now.
func parseTime(text string, now time.Time) (time.Time, error) {
	ago, unit := text, time.Duration(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		ago, unit = days+"h", 24
	}
	if d, err := time.ParseDuration(ago); err == nil {
		return now.Add(-d * unit), nil
	}
	for _, layout := range []string{time.RFC3339, timeLayout, "2006-01-02"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid time %q: use 90m, 2d, 2026-11-22 or 2026-11-22T09:00:00Z", text)
}

// selectFlags select the dead letters that a command changes.
type selectFlags struct {
	IDs []string `arg:"" optional:"" name:"id" help:"IDs of dead letters, or their first characters."`
	filterFlags
	All bool `help:"Select all dead letters."`
}

func (f selectFlags) filter() (admin.Filter, error) {
	filter, err := f.filterFlags.filter()
	filtered := f.filterFlags != filterFlags{}
	switch {
	case err != nil:
		return filter, err
	case len(f.IDs) == 0 && !filtered && !f.All:
		return filter, usageError("no dead letters are selected: give their IDs, a filter such as --stage, or --all")
	case f.All && (len(f.IDs) > 0 || filtered):
		return filter, usageError("--all cannot be combined with IDs or filters: use one of them")
	}
	filter.IDs = f.IDs
	return filter, nil
}

type dlqListCommand struct {
	dataFlags
	filterFlags
	Format string `enum:"table,json,ndjson" default:"table" help:"table, json or ndjson."`
}

func (dlqListCommand) Help() string {
	return `Lists dead letters. A dead letter is a failed event, or one row of it that a sink rejected. It contains the
position in the source, the stage and the error of the failure, and the bytes as read. The formats json
and ndjson show all fields, including the script's traceback. The command works with or without a running
engine. "perigee query" has the same data in the table dead_letters.

Examples:
  perigee dlq list
  perigee dlq list --config pipeline.yaml --pipeline emails --stage script --since 2h
  perigee dlq list --format ndjson | jq -r .original`
}

func (l *dlqListCommand) Run(c *console) error {
	filter, err := l.filter()
	if err != nil {
		return err
	}
	return l.use(c, func(ctx context.Context, a *admin.Admin) error {
		letters := a.DeadLetters(ctx, filter)
		switch l.Format {
		case "json":
			return printLetterArray(c.out, letters)
		case "ndjson":
			return printLetterLines(c.out, letters)
		}
		queue, err := a.DeadLetterQueue(ctx)
		if err != nil {
			return err
		}
		if err := printLetterTable(c.out, letters, queue); err != nil {
			return err
		}
		printData(c.out, a.Data())
		return nil
	})
}

// use calls operate with the operations on the data folder.
func (f dataFlags) use(c *console, operate func(context.Context, *admin.Admin) error) error {
	a, err := f.open(c)
	if err != nil {
		return err
	}
	defer a.Close()
	return operate(context.Background(), a)
}

type dlqShowCommand struct {
	ID string `arg:"" help:"ID of the dead letter, or its first characters."`
	dataFlags
	Raw  bool `xor:"form" help:"Print only the bytes of the event, as read."`
	JSON bool `xor:"form" name:"json" help:"Print one JSON object."`
}

func (dlqShowCommand) Help() string {
	return `Shows one dead letter: the origin of the event, the stage and the error of the failure, the script's version
and traceback, the times of storage, the number of retries, and the event.

Examples:
  perigee dlq show k3j9x0a2bq
  perigee dlq show k3j9 --raw | perigee eval repaired.lua`
}

func (s *dlqShowCommand) Run(c *console) error {
	return s.use(c, func(ctx context.Context, a *admin.Admin) error {
		for letter, err := range a.DeadLetters(ctx, admin.Filter{IDs: []string{s.ID}}) {
			switch {
			case err != nil:
				return err
			case s.Raw:
				_, err = c.out.Write(letter.Event())
			case s.JSON:
				err = newEncoder(c.out).Encode(letter)
			default:
				err = printLetter(c.out, &letter)
			}
			return err
		}
		return fmt.Errorf("dead letter %s was deleted or retried in the meantime", s.ID)
	})
}

type dlqRetryCommand struct {
	selectFlags
	dataFlags
}

func (dlqRetryCommand) Help() string {
	return `Moves dead letters into the queue of their pipeline, which sends them through the current script like new
events. Each is written once, even if processes are killed at any moment. An event that fails again
becomes a dead letter with the same ID. A row that one sink rejected goes to that sink only. Without a
running engine the queue waits for the next "perigee run".

The command skips dead letters whose batch is not committed, because the engine reads their events again.

Examples:
  perigee dlq retry k3j9x0a2bq
  perigee dlq retry --pipeline emails --stage script
  perigee dlq retry --all --config pipeline.yaml`
}

func (r *dlqRetryCommand) Run(c *console) error {
	filter, err := r.filter()
	if err != nil {
		return err
	}
	return r.use(c, func(ctx context.Context, a *admin.Admin) error {
		result, err := a.RetryDeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		printRetry(c.out, &result, a.Remote())
		printData(c.out, a.Data())
		return nil
	})
}

type dlqPurgeCommand struct {
	selectFlags
	dataFlags
	Yes bool `short:"y" help:"Do not ask for confirmation."`
}

func (dlqPurgeCommand) Help() string {
	return `Deletes dead letters with their events. On a terminal the command asks for confirmation; elsewhere --yes
is required.

Examples:
  perigee dlq purge k3j9x0a2bq
  perigee dlq purge --stage parse --before 30d --yes`
}

func (p *dlqPurgeCommand) Run(c *console) error {
	filter, err := p.filter()
	if err != nil {
		return err
	}
	return p.use(c, func(ctx context.Context, a *admin.Admin) error {
		if !p.Yes {
			n, err := a.CountDeadLetters(ctx, filter)
			if err != nil {
				return err
			}
			if err := c.confirm(fmt.Sprintf("Delete %s in data folder %s?", countOf(n, "dead letter"), a.Data())); err != nil {
				return err
			}
		}
		n, err := a.PurgeDeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s deleted\n", countOf(n, "dead letter"))
		printData(c.out, a.Data())
		return nil
	})
}
