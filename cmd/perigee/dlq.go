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
	Pipeline string `help:"Only those of this pipeline."`
	Stage    string `enum:"parse,script,column,sink,damaged," default:"" help:"Only those that failed at this stage: parse, script, column or sink; or damaged."`
	Sink     string `help:"Only rows that this sink rejected."`
	Text     string `help:"Only those with this text in the error or the event."`
	Since    string `placeholder:"TIME" help:"Only those last stored then or later: 90m and 2d are before now, or 2026-11-22T09:00:00Z."`
	Before   string `placeholder:"TIME" help:"Only those last stored earlier."`
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
	IDs []string `arg:"" optional:"" name:"id" help:"IDs of dead letters, or the first characters of them."`
	filterFlags
	All bool `help:"All dead letters."`
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
		return filter, usageError("--all excludes IDs and filters: leave it out, or them")
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
	return `A dead letter is an event that could not be processed, or a row of it that one sink rejected, with its
position in the source, the stage and the error at which it failed, and the bytes as they were read.
The formats json and ndjson show all of it, including the script's traceback. The command works while
an engine runs. In "perigee query" the table dead_letters has the same.

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
	Raw  bool `xor:"form" help:"Only the event, byte by byte as it was read."`
	JSON bool `xor:"form" name:"json" help:"One JSON object."`
}

func (dlqShowCommand) Help() string {
	return `Shows where the event came from, where and why it failed, the script's version and traceback, when it
was stored and how often it was retried, and the event.

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
	return `Puts dead letters into the queue of their pipeline, which reads them like new events, through the
current script. Each is written once, whatever is killed when. One that fails again becomes a dead
letter with the same ID. A row that one sink rejected goes to that sink only. Without a running engine
the letters wait for the next "perigee run".

Letters whose batch is not committed are left alone: the engine reads their events again anyway.

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
	return `Deletes dead letters with the events in them. On a terminal it asks first; elsewhere --yes is required.

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
