package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/event"
)

// A trial is one place that a pipeline needs, and what came of trying it.
type trial struct {
	pipeline, part, kind string
	try                  func(context.Context) error // nil: the kind cannot be tried
	err                  error
}

// trials are those of every source and sink.
func (pl *plan) trials() (all []*trial) {
	for _, p := range pl.parts {
		one := &trial{pipeline: p.config.Name, part: "source", kind: p.config.Source.Kind, try: p.source.Traits().Check}
		all = append(all, one)
		for _, o := range p.sinks {
			one := &trial{pipeline: p.config.Name, part: "sink", kind: o.config.Kind, try: o.sink.Traits().Check}
			if o.config.Name != o.config.Kind {
				one.part += " " + o.config.Name
			}
			all = append(all, one)
		}
	}
	return all
}

// connect tries every place at the same time, says how each is, and returns the
// faults.
func (pl *plan) connect(w io.Writer, most time.Duration) error {
	all := pl.trials()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	var trying sync.WaitGroup
	for _, one := range all {
		if one.try != nil {
			trying.Go(func() { one.err = one.run(ctx, most) })
		}
	}
	trying.Wait()

	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"pipeline", "part", "kind", "state"})
	var faults []error
	for _, one := range all {
		t.AppendRow(table.Row{one.pipeline, one.part, one.kind, one.state()})
		if one.err != nil {
			fault := fmt.Errorf("pipeline %s, %s %s: %w", one.pipeline, one.part, one.kind, one.err)
			faults = append(faults, event.WithHint(fault, orElse(event.HintOf(one.err), "is the server up, and is its address right?")))
		}
	}
	if _, err := fmt.Fprintln(w, t.Render()); err != nil {
		return err
	}
	return errors.Join(faults...)
}

// run tries one place, no longer than it may take even if the kind is deaf to ctx.
func (t *trial) run(ctx context.Context, most time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- t.try(ctx) }()
	select {
	case err := <-done:
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("no answer within %s: %w", most, err)
		}
		return err
	case <-time.After(most + time.Second):
		return fmt.Errorf("no answer within %s", most)
	}
}

func (t *trial) state() string {
	switch {
	case t.try == nil:
		return "not tried: there is no way to, for this kind"
	case t.err != nil:
		return firstLine(t.err.Error(), 80)
	}
	return "ok"
}
