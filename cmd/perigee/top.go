package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/internal/top"
)

type topCommand struct {
	dataFlags
	URL   string `placeholder:"URL" help:"Address of an engine elsewhere, such as http://host:4290, whose console is on."`
	Token string `env:"PERIGEE_TOKEN" placeholder:"TOKEN" help:"Token of that console; better in the variable PERIGEE_TOKEN, since others can see arguments."`
}

func (topCommand) Help() string {
	return `Shows the pipelines of a running engine on the terminal, once a second: events read and delivered, lag, time
from reading a batch until every sink has it, load of script and sinks, dead letters and failures. Rates and
times are those of the last five seconds.

Keys: up and down choose a pipeline, enter shows its sinks, p pauses and r resumes it, d shows its dead
letters, esc goes back, q ends. n, i, o, l, t, s and x sort by name, input, output, lag, time, script and dead
letters.

Examples:
  perigee top
  perigee top --config pipeline.yaml
  PERIGEE_TOKEN=$(cat token) perigee top --url https://host.example.com:4290`
}

func (t *topCommand) Run(c *console) error {
	if !terminal.Is(c.out) {
		return usageError("perigee top needs a terminal; perigee status --format json has the same figures")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	show := func(_ context.Context, a *admin.Admin) error {
		if _, err := a.Status(ctx); err != nil {
			return err
		}
		return top.Run(ctx, topEngine{a})
	}
	if t.URL == "" {
		return t.use(c, show)
	}
	a, err := admin.OpenHTTP(t.URL, t.Token)
	if err != nil {
		return err
	}
	return errors.Join(show(ctx, a), a.Close())
}

// topEngine is the engine that package top shows.
type topEngine struct{ *admin.Admin }

// DeadLetters implements top.Engine.
func (e topEngine) DeadLetters(ctx context.Context, pipeline string, limit int) (some []admin.DeadLetter, err error) {
	for d, err := range e.Admin.DeadLetters(ctx, admin.Filter{Pipeline: pipeline}) {
		if err != nil {
			return nil, err
		}
		if some = append(some, d); len(some) == limit {
			break
		}
	}
	return some, nil
}
