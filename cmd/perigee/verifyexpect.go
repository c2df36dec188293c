package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/chaos"
	"github.com/perigeedb/perigee/script"
)

// expect returns a function that computes the expected result of each event: it runs the
// script of a worker's configuration without an engine.
func expect(c *console) chaos.ExpectFunc {
	return func(ctx context.Context, file string, events [][]byte) ([]chaos.Expected, error) {
		options := engineOptions(c, nil, nil)
		conf, err := engine.Load(ctx, file, options)
		if conf == nil {
			return nil, err
		}
		a, err := engine.Assemble(ctx, conf, options)
		if err != nil {
			return nil, err
		}
		expected, err := runScript(ctx, a.Pipelines[0], events)
		return expected, errors.Join(err, a.Close())
	}
}

func runScript(ctx context.Context, p *engine.Pipeline, events [][]byte) ([]chaos.Expected, error) {
	all := make([]chaos.Expected, len(events))
	var batch event.Batch
	for i, one := range events {
		all[i].Rows = make([]uint8, len(p.Sinks))
		batch.Append(one)
	}
	batch.Range.Count = uint64(batch.Len())
	result := event.Result{Outputs: make([]event.Output, len(p.Sinks))}
	err := script.RunAll(ctx, p.Script, &batch, &result, 0, func(*event.Batch, *script.LimitError) error {
		addResult(all, p, &result)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("run the script: %w", err)
	}
	return all, nil
}

// addResult adds the result of a run to the expected results of its events.
func addResult(all []chaos.Expected, p *engine.Pipeline, result *event.Result) {
	for s := range result.Outputs {
		out := &result.Outputs[s]
		for row := range out.Len() {
			all[out.Position(row)].Rows[s]++
		}
	}
	for _, dead := range result.Dead {
		s := slices.IndexFunc(p.Sinks, func(s engine.Sink) bool { return s.Config.Name == dead.Sink })
		if s < 0 {
			all[dead.Position].Dead = true
		} else {
			all[dead.Position].Rows[s]++
		}
	}
}
