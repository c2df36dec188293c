package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/chaos"
	"github.com/perigeedb/perigee/script"
)

// oracle runs the script of a worker's configuration and no engine.
func (v *verifyCommand) oracle(c *console) chaos.ExpectFunc {
	return func(ctx context.Context, file string, events [][]byte) ([]chaos.Expected, error) {
		plan, err := assemble(ctx, configFlags{Config: file}, c, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		outcomes, err := plan.parts[0].outcomes(ctx, events)
		return outcomes, errors.Join(err, plan.close())
	}
}

// outcomes are what the script makes of events.
func (p *part) outcomes(ctx context.Context, events [][]byte) ([]chaos.Expected, error) {
	all := make([]chaos.Expected, len(events))
	var batch event.Batch
	for i, one := range events {
		all[i].Rows = make([]uint8, len(p.sinks))
		batch.Append(one)
	}
	batch.Range.Count = uint64(batch.Len())
	result := event.Result{Outputs: make([]event.Output, len(p.sinks))}
	err := script.RunAll(ctx, p.script, &batch, &result, 0, func(*event.Batch, *script.LimitError) error {
		p.note(all, &result)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("run the script: %w", err)
	}
	return all, nil
}

// note adds what came of a run.
func (p *part) note(all []chaos.Expected, result *event.Result) {
	for s := range result.Outputs {
		out := &result.Outputs[s]
		for row := range out.Len() {
			all[out.Position(row)].Rows[s]++
		}
	}
	for _, dead := range result.Dead {
		s := slices.Index(p.sinkNames(), dead.Sink)
		if s < 0 {
			all[dead.Position].Dead = true
		} else {
			all[dead.Position].Rows[s]++
		}
	}
}
