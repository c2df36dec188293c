package main

import (
	"context"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/pipeline"
)

type statusCommand struct {
	dataFlags
	Format string `enum:"table,json" default:"table" help:"table or json."`
	Live   bool   `help:"Only tell whether an engine answers, by the exit code."`
}

func (statusCommand) Help() string {
	return `Shows the pipelines of the engine that runs in the data folder. The rate covers the last half second;
lag counts the events that are not yet committed in a sink. Below them are the tables whose last attempt
to publish them in a lake failed.

Exit code: 0 if every pipeline reads, 1 if one does not or no engine runs. With --live it is 0 while an
engine answers, whatever its pipelines do, as a health check of a container wants it.

Examples:
  perigee status
  watch perigee status --config pipeline.yaml
  perigee status --live --data /var/lib/perigee/data`
}

// ratedStatus is a status with the rate over rateInterval.
type ratedStatus struct {
	admin.Status
	Rate uint64 `json:"events_per_s"`
}

// rateInterval is the time over which the rate is measured.
const rateInterval = 500 * time.Millisecond

func (s *statusCommand) Run(c *console) error {
	return s.use(c, func(ctx context.Context, a *admin.Admin) error {
		if s.Live {
			_, err := a.Status(ctx)
			return err
		}
		all, err := measureRates(ctx, a)
		if err != nil {
			return err
		}
		if s.Format == "json" {
			err = newEncoder(c.out).Encode(all)
		} else if err = printStatus(c.out, all); err == nil {
			// An error that prevents the list of tables also stops their pipelines, which status shows.
			tables, _ := eventservice.Tables(ctx, a.Data())
			printLakeFailures(c.out, tables)
			printData(c.out, a.Data())
		}
		for _, one := range all {
			if one.State != pipeline.Running && err == nil {
				err = exitError(exitFailure)
			}
		}
		return err
	})
}

func measureRates(ctx context.Context, a *admin.Admin) ([]ratedStatus, error) {
	before, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	events := map[string]uint64{}
	for _, one := range before {
		events[one.Pipeline] = one.Events
	}
	start := time.Now()
	time.Sleep(rateInterval)
	after, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	all := []ratedStatus{}
	for _, one := range after {
		new := one.Events - min(one.Events, events[one.Pipeline])
		all = append(all, ratedStatus{one, perSecond(new, time.Since(start))})
	}
	return all, nil
}

func printStatus(w io.Writer, all []ratedStatus) error {
	t := newTable("pipeline", "state", "events", "events/s", "dead letters", "sink", "rows", "lag")
	for _, one := range all {
		row := table.Row{one.Pipeline, one.State, one.Events, one.Rate, one.DeadLetters}
		for _, sink := range one.Sinks {
			t.AppendRow(append(row, sink.Name, sink.Rows, sink.Lag))
			row = table.Row{"", "", "", "", ""}
		}
	}
	text := t.Render() + "\n"
	for _, one := range all {
		if one.WhyEmpty != "" {
			text += one.Pipeline + ": " + terminal.Escape(one.WhyEmpty) + "\n"
		}
		if one.Reason == "" {
			continue
		}
		text += one.Pipeline + " is " + string(one.State)
		if one.Since != nil {
			text += " since " + one.Since.UTC().Format(timeLayout) + " UTC"
		}
		if one.Next != nil {
			text += ", tries a batch at " + one.Next.UTC().Format(timeLayout) + " UTC"
		}
		text += ": " + terminal.Escape(one.Reason) + "\n"
	}
	for _, one := range all {
		if one.Shadow != nil {
			text += describeShadow(one.Pipeline, one.Shadow) + "\n"
		}
	}
	_, err := io.WriteString(w, text)
	return err
}
