package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

type positionCommand struct {
	Show   positionShowCommand   `cmd:"" help:"Show how far each sink is in each partition."`
	Set    positionSetCommand    `cmd:"" help:"Set the position that a pipeline goes on from."`
	Rewind positionRewindCommand `cmd:"" help:"Read the last events again."`
}

// A position is how far a sink is in a partition.
type position struct {
	Pipeline  string `json:"pipeline"`
	Partition string `json:"partition"`
	Sink      string `json:"sink"`
	Next      uint64 `json:"next"`   // the first that the sink lacks
	Has       string `json:"has"`    // ranges
	Events    uint64 `json:"events"` // in them

	Source string  `json:"source,omitempty"` // what the source has of the partition, if it can tell, or why it can't
	Behind *uint64 `json:"behind,omitempty"` // positions that it has behind the last of the sink's
}

type positionShowCommand struct {
	configFlags
	Pipeline string `arg:"" optional:"" help:"Only those of this pipeline."`
	Retries  bool   `help:"Also the queues of dead letters that were tried again."`
	Format   string `enum:"table,json" default:"table" help:"table or json."`
}

func (positionShowCommand) Help() string {
	return `Every sink that gives exactly once keeps, beside the rows, the ranges of positions that it has of each
partition. What is in all of them is never read again. Several ranges are batches that were written
out of order or are still on their way. Redis, Kafka, NATS and a single file also tell what they have of
a partition, and so how far a sink is behind; positions without an event count too.

Examples:
  perigee position show pipeline.yaml
  perigee position show pipeline.yaml emails --format json`
}

func (p *positionShowCommand) Run(c *console) error {
	q := url.Values{"pipeline": {p.Pipeline}}
	if p.Retries {
		q.Set("retries", "yes")
	}
	var answer bytes.Buffer
	if err := p.ledger(c, "GET /positions", q, &answer); err != nil {
		return err
	}
	if p.Format == "json" {
		_, err := answer.WriteTo(c.out)
		return err
	}
	var all []position
	if err := json.Unmarshal(answer.Bytes(), &all); err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	return positionTable(c.out, all)
}

func positionTable(w io.Writer, all []position) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"pipeline", "partition", "sink", "next", "has", "source has", "behind"})
	for _, one := range all {
		behind := ""
		if one.Behind != nil {
			behind = strconv.FormatUint(*one.Behind, 10)
		}
		t.AppendRow(table.Row{one.Pipeline, one.Partition, one.Sink, one.Next, firstLine(one.Has, 60), firstLine(one.Source, 60), behind})
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no sink remembers a position yet")
		return err
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// moveFlags say what is moved.
type moveFlags struct {
	configFlags
	Pipeline  string `arg:"" help:"Name of the pipeline."`
	Partition string `help:"Partition, or the beginning of its name; needed where there are several."`
	Sink      string `help:"Only in this sink."`
	Force     bool   `help:"Although a worker has the partition: it is fenced, and goes on from the new position."`
	Yes       bool   `short:"y" help:"Do not ask."`
}

const moveHelp = `
It says first what is read again and what is skipped, and asks; where nobody can be asked it wants
--yes. Rows of events that are read again land again, unless the sink upserts them. What the source
has given up cannot be read again: a Redis list is trimmed behind what is durable, a file is not.

A partition that a worker has is refused: pause the pipeline first, or say --force.
`

type positionSetCommand struct {
	moveFlags
	Next uint64 `arg:"" help:"The position of the event to go on with."`
}

func (positionSetCommand) Help() string {
	return `Makes the sinks take all events before the position as had, and forget the rest.
` + moveHelp + `
Examples:
  perigee position set pipeline.yaml emails 150000
  perigee position set pipeline.yaml orders 0 --partition 'orders/3' --sink archive --yes`
}

func (p *positionSetCommand) Run(c *console) error {
	return p.move(c, url.Values{"next": {strconv.FormatUint(p.Next, 10)}})
}

type positionRewindCommand struct {
	moveFlags
	Events uint64 `arg:"" help:"How many events to go back."`
}

func (positionRewindCommand) Help() string {
	return `Makes the sinks forget the last events, so that they are read again.
` + moveHelp + `
Examples:
  perigee position rewind pipeline.yaml emails 5000`
}

func (p *positionRewindCommand) Run(c *console) error {
	return p.move(c, url.Values{"back": {strconv.FormatUint(p.Events, 10)}})
}

func (f *moveFlags) move(c *console, q url.Values) error {
	q["pipeline"], q["partition"], q["sink"] = []string{f.Pipeline}, []string{f.Partition}, []string{f.Sink}
	if f.Force {
		q.Set("force", "yes")
	}
	if !f.Yes {
		var plan bytes.Buffer
		q.Set("dry", "yes")
		if err := f.ledger(c, "POST /positions", q, &plan); err != nil {
			return err
		}
		fmt.Fprint(c.err, plan.String())
		if err := c.confirm("Go ahead?"); err != nil {
			return err
		}
		q.Del("dry")
	}
	return f.ledger(c, "POST /positions", q, c.out)
}

// ledger lets the engine answer that runs in the configuration's data folder, or,
// when none runs there, this process.
func (f configFlags) ledger(c *console, route string, q url.Values, out io.Writer) error {
	ctx := context.Background()
	conf, _, err := f.load(ctx, c)
	if err != nil {
		return err
	}
	method, path, _ := strings.Cut(route, " ")
	if asked, err := askEngine(conf.Data, method, path, q, nil, out); asked || err != nil {
		return err
	}
	lock, err := own(conf.Data)
	if err != nil {
		return err
	}
	defer lock.Close()
	plan, err := assemble(ctx, f, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	answer := ledgerRoutes()[route](ctx, out, &ledger{parts: plan.parts, data: conf.Data}, q)
	return errors.Join(answer, plan.close())
}
