package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
)

// A StateTask names the units of a state on which an operation works.
type StateTask struct {
	State string `json:"state,omitempty"` // empty: all states, which only VerifyState takes
	// Unit may be empty: all units for VerifyState, and else the only one.
	Unit string `json:"unit,omitempty"`
}

// A StateStep is either the progress of an operation on a unit or its result.
type StateStep struct {
	State    string                `json:"state"`
	Unit     string                `json:"unit"`
	Progress *state.Progress       `json:"progress,omitempty"`
	Checks   []state.Check         `json:"checks,omitempty"`   // of VerifyState
	Snapshot *state.SnapshotResult `json:"snapshot,omitempty"` // of SnapshotState
	Restored *state.RestoreResult  `json:"restored,omitempty"` // of RestoreState
}

// A stateOperation works on one unit. It reports progress, and fills the step with its result.
type stateOperation func(ctx context.Context, p *Pipeline, unit string, progress func(state.Progress), result *StateStep) error

// VerifyState checks what there is of units: copies, notes at the home, and the archive. It changes
// nothing.
func (a *Admin) VerifyState(ctx context.Context, t StateTask) iter.Seq2[StateStep, error] {
	if a.remote != nil {
		return stream[StateStep](ctx, a.remote, "state-verify", t)
	}
	return a.onUnits(ctx, t, true, func(ctx context.Context, p *Pipeline, unit string, progress func(state.Progress), result *StateStep) (err error) {
		result.Checks, err = p.State.Verify(ctx, unit, progress)
		return err
	})
}

// SnapshotState makes a snapshot of a unit in the archive, through the engine if one runs.
func (a *Admin) SnapshotState(ctx context.Context, t StateTask) iter.Seq2[StateStep, error] {
	if a.remote != nil {
		return stream[StateStep](ctx, a.remote, "state-snapshot", t)
	}
	return a.onUnits(ctx, t, false, func(ctx context.Context, p *Pipeline, unit string, progress func(state.Progress), result *StateStep) error {
		made, err := p.snapshot(ctx, unit, progress)
		result.Snapshot = &made
		return err
	})
}

func (p *Pipeline) snapshot(ctx context.Context, unit string, progress func(state.Progress)) (made state.SnapshotResult, err error) {
	if p.Running != nil {
		return p.Running.SnapshotState(ctx, unit, progress)
	}
	if !p.State.CanRestore() {
		return made, p.State.NoArchive()
	}
	u, err := state.Open(ctx, p.State, unit)
	if err != nil {
		return made, err
	}
	made, err = u.Snapshot(ctx, progress)
	return made, errors.Join(err, u.Close())
}

// RestoreState makes the copy of a unit at the last note of the home, from the archive. No engine may
// run in the data folder.
func (a *Admin) RestoreState(ctx context.Context, t StateTask) iter.Seq2[StateStep, error] {
	if a.remote != nil {
		return func(yield func(StateStep, error) bool) {
			yield(StateStep{}, event.WithHint(fmt.Errorf("an engine runs in %s", a.data), "stop it first: it has the state open"))
		}
	}
	return a.onUnits(ctx, t, false, func(ctx context.Context, p *Pipeline, unit string, progress func(state.Progress), result *StateStep) error {
		restored, err := p.State.Restore(ctx, unit, progress)
		result.Restored = &restored
		return err
	})
}

// onUnits runs an operation on the units of a task, one after the other; with all, on all units of
// those that the task leaves open.
func (a *Admin) onUnits(ctx context.Context, t StateTask, all bool, operate stateOperation) iter.Seq2[StateStep, error] {
	return func(yield func(StateStep, error) bool) {
		targets, err := a.targets(ctx, t, all)
		if err != nil {
			yield(StateStep{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, target := range targets {
			stopped := false
			progress := func(p state.Progress) {
				if !stopped && !yield(StateStep{State: target.pipeline.State.Name, Unit: target.unit, Progress: &p}, nil) {
					stopped = true
					cancel()
				}
			}
			result := StateStep{State: target.pipeline.State.Name, Unit: target.unit}
			err := runHere(func(report func(state.Progress)) error {
				return operate(ctx, &target.pipeline, target.unit, report, &result)
			}, progress)
			if stopped || !yield(result, err) || err != nil {
				return
			}
		}
	}
}

// runHere runs an operation that may report progress from another goroutine, and calls progress in
// this one.
func runHere(operate func(report func(state.Progress)) error, progress func(state.Progress)) error {
	reports, ended := make(chan state.Progress), make(chan error, 1)
	go func() {
		ended <- operate(func(p state.Progress) {
			select {
			case reports <- p:
			default: // the one before is still being shown
			}
		})
	}()
	for {
		select {
		case p := <-reports:
			progress(p)
		case err := <-ended:
			return err
		}
	}
}

// A stateTarget is a unit of an operation.
type stateTarget struct {
	pipeline Pipeline
	unit     string
}

func (a *Admin) targets(ctx context.Context, t StateTask, all bool) (targets []stateTarget, err error) {
	var pipelines []Pipeline
	if t.State == "" && all {
		for _, p := range a.pipelines() {
			if p.State != nil {
				pipelines = append(pipelines, p)
			}
		}
	}
	if len(pipelines) == 0 {
		p, err := a.findState(t.State)
		if err != nil {
			return nil, err
		}
		pipelines = append(pipelines, p)
	}
	for _, p := range pipelines {
		if t.Unit != "" || !all {
			unit, err := p.findUnit(ctx, t.Unit)
			if err != nil {
				return nil, err
			}
			targets = append(targets, stateTarget{p, unit})
			continue
		}
		units, err := p.stateUnits(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range units {
			targets = append(targets, stateTarget{p, u.Unit})
		}
	}
	return targets, nil
}
