package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
)

// What a Move does with the unit of the partition.
const (
	StateKeep  = "keep"
	StateEmpty = "empty"
)

// checkMoveOfState refuses a move that does not say what happens to the state.
func (p *Pipeline) checkMoveOfState(m Move) error {
	_, err := strconv.ParseUint(m.State, 10, 64)
	switch {
	case p.State == nil && m.State != "":
		return event.WithHint(fmt.Errorf("pipeline %s has no state", p.Name), "leave out --state")
	case p.State == nil, m.State == StateKeep:
		return nil
	case m.State == StateEmpty && p.State.Shared:
		return event.WithHint(fmt.Errorf("the partitions of pipeline %s share one unit: emptying it would forget the events of all", p.Name),
			"move all partitions with --state keep, and empty the unit in its script, or give the state a new version")
	case m.State == StateEmpty:
		return nil
	case m.State == "":
		return &event.PermanentError{
			Err:  fmt.Errorf("pipeline %s has a state, %s: events that are read again would change it again, and events that are skipped would be missing in it", p.Name, p.State.Name),
			Hint: "--state keep leaves the state as it is; --state empty empties the unit of the partition",
		}
	case err == nil:
		return event.WithHint(errors.New("a position cannot be moved together with the state as of a note yet"), "use --state keep or --state empty")
	}
	return event.WithHint(fmt.Errorf("unknown --state %q", m.State), "use keep or empty")
}

// unitOf returns the unit of a partition.
func (p *Pipeline) unitOf(partition string) string {
	if unit, timers := pipeline.IsTimers(partition); timers {
		return unit
	}
	if of := p.Source.Traits().Unit; of != nil {
		partition = of(partition)
	}
	return p.State.UnitOf(partition)
}

// emptyUnit empties the unit of the plan's partition, if the move asks for it.
func (m *movePlan) emptyUnit(ctx context.Context) (err error) {
	if !m.emptyState {
		return nil
	}
	p := m.pipeline
	i := slices.IndexFunc(p.Sinks, func(s Sink) bool { return s.Name == p.State.HomeName })
	if i < 0 {
		return fmt.Errorf("pipeline %s has no sink %s, the home of its state", p.Name, p.State.HomeName)
	}
	unit := p.unitOf(m.partition)
	e, err := state.Edit(ctx, p.State, p.Sinks[i].Sink, unit, pipeline.TimersOf(unit))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.Empty(ctx)
}
