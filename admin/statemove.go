package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
)

// The states that a Move can give the unit of the partition, unless it names a note.
const (
	StateKeep  = "keep"
	StateEmpty = "empty"
)

// note returns the number of the note to which the move sets the unit; false if it sets it to none.
func (m *Move) note() (number uint64, ok bool) {
	number, err := strconv.ParseUint(m.State, 10, 64)
	return number, err == nil
}

// checkMoveOfState refuses a move that does not say what happens to the state.
func (p *Pipeline) checkMoveOfState(m Move) error {
	_, toNote := m.note()
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
			Hint: "--state keep leaves the state as it is; --state empty empties the unit of the partition; --state NUMBER sets it to what it was after that note",
		}
	case toNote && m.Sink != "":
		return event.WithHint(errors.New("the state as of a note goes with the positions of all sinks"), "leave out --sink")
	case toNote && m.Force:
		return event.WithHint(errors.New("a state cannot be set while a worker uses it"), "pause the pipeline (perigee pause), and leave out --force")
	case toNote:
		return nil
	}
	return event.WithHint(fmt.Errorf("unknown --state %q", m.State), "use keep, empty or the number of a note")
}

// planUnit plans how the unit is set to a note, if the move asks for it.
func (m *movePlan) planUnit(ctx context.Context, move Move) error {
	number, ok := move.note()
	if !ok || m.pipeline.State == nil {
		return nil
	}
	if _, timers := pipeline.IsTimers(m.partition); timers || deadletter.IsRetryBatch(m.partition) {
		return event.WithHint(fmt.Errorf("partition %s has no events of the source", m.partition), "choose the partition of the events with --partition")
	}
	unit := m.pipeline.unitOf(m.partition)
	set := &UnitMove{Unit: unit, Others: m.othersOf(unit)}
	if m.pipeline.State.Shared && len(set.Others) > 0 {
		return event.WithHint(fmt.Errorf("the partitions of pipeline %s share one unit: setting it to note %d would forget later events of all", m.pipeline.Name, number),
			"move all partitions with --state keep, and correct the unit in its script, or give the state a new version")
	}
	note, err := m.pipeline.State.PastNote(ctx, unit, number, m.partition)
	if err != nil {
		return err
	}
	set.Note, m.setUnit = *note, set
	return nil
}

// othersOf returns the other partitions with events of a unit that the sinks know.
func (m *movePlan) othersOf(unit string) []string {
	others := map[string]bool{}
	for _, c := range m.committed {
		for partition, ranges := range c.ranges {
			_, timers := pipeline.IsTimers(partition)
			if !timers && !deadletter.IsRetryBatch(partition) && partition != m.partition && len(ranges) > 0 && m.pipeline.unitOf(partition) == unit {
				others[partition] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(others))
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
	home, err := m.pipeline.stateHome()
	if err != nil {
		return err
	}
	unit := m.pipeline.unitOf(m.partition)
	e, err := state.Edit(ctx, m.pipeline.State, home, unit, pipeline.TimersOf(unit))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.Empty(ctx)
}

// moveUnit sets the unit to the note of the plan, and the positions.
func (m *movePlan) moveUnit(ctx context.Context, relative bool) error {
	home, err := m.pipeline.stateHome()
	if err != nil {
		return err
	}
	unit := m.setUnit.Unit
	move := state.Move{Pipeline: m.pipeline.Name, Partition: m.partition, Next: m.next, Note: m.setUnit.Note.Number}
	changes, err := m.pipeline.State.Move(ctx, move, relative, home, unit, pipeline.TimersOf(unit), m.setPosition)
	m.setUnit.Changed = &changes
	return err
}

// stateHome returns the sink that is the home of the state.
func (p *Pipeline) stateHome() (sink.Sink, error) {
	i := slices.IndexFunc(p.Sinks, func(s Sink) bool { return s.Name == p.State.HomeName })
	if i < 0 {
		return nil, fmt.Errorf("pipeline %s has no sink %s, the home of its state", p.Name, p.State.HomeName)
	}
	return p.Sinks[i].Sink, nil
}
