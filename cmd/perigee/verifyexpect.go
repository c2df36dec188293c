package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/admin"
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
		stages, err := engine.LoadStages(ctx, conf, "", options, engine.StageOptions{})
		if err != nil {
			return nil, err
		}
		expected, err := runScript(ctx, stages, events)
		return expected, errors.Join(err, stages.Close())
	}
}

// readState returns a function that reads what the script of Pipeline.WithState has remembered.
func readState(c *console) chaos.ReadStateFunc {
	return func(ctx context.Context, file string, each func(id uint64, times int)) error {
		return configFlags{Config: file}.usePositions(c, func(_ context.Context, a *admin.Admin) error {
			units, err := a.States(ctx, admin.StateFilter{})
			if err != nil {
				return err
			}
			for _, u := range units {
				for node, err := range a.StateNodes(ctx, admin.NodeQuery{State: u.State, Unit: u.Unit, Path: "^seen"}) {
					if err != nil {
						return err
					}
					var id uint64
					var times int
					if _, err := fmt.Sscanf(node.Path, "^seen(%d)", &id); err != nil {
						return fmt.Errorf("node %s of unit %s: %w", node.Path, u.Unit, err)
					}
					if err := json.Unmarshal(node.Value, &times); err != nil {
						return fmt.Errorf("node %s of unit %s is %s: %w", node.Path, u.Unit, node.Value, err)
					}
					each(id, times)
				}
			}
			return nil
		})
	}
}

func runScript(ctx context.Context, p *engine.Stages, events [][]byte) ([]chaos.Expected, error) {
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
func addResult(all []chaos.Expected, p *engine.Stages, result *event.Result) {
	for s := range result.Outputs {
		out := &result.Outputs[s]
		for row := range out.Len() {
			all[out.Position(row)].Rows[s]++
		}
	}
	for _, dead := range result.Dead {
		s := slices.IndexFunc(p.Sinks, func(s engine.StageSink) bool { return s.Config.Name == dead.Sink })
		if s < 0 {
			all[dead.Position].Dead = true
		} else {
			all[dead.Position].Rows[s]++
		}
	}
}
