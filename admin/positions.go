package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
)

// A Position is the position of one sink in one partition.
type Position struct {
	Pipeline  string `json:"pipeline"`
	Partition string `json:"partition"`
	Sink      string `json:"sink"`
	Next      uint64 `json:"next"`      // the first position that is not committed
	Committed string `json:"committed"` // ranges
	Events    uint64 `json:"events"`    // in these ranges

	Source string  `json:"source,omitempty"` // the range in the source, or the reason why it is unknown
	Lag    *uint64 `json:"lag,omitempty"`    // positions in the source after the last committed one
}

// A PositionFilter selects positions. An empty field selects all, without Retries.
type PositionFilter struct {
	Pipeline string `json:"pipeline,omitempty"`
	Retries  bool   `json:"retries,omitempty"` // also those of retried dead letters
}

// boundsTimeout bounds the time of a source to report its range.
const boundsTimeout = 5 * time.Second

// Positions returns the committed ranges of all sinks that store positions.
func (a *Admin) Positions(ctx context.Context, f PositionFilter) ([]Position, error) {
	if a.remote != nil {
		return call[[]Position](ctx, a.remote, "positions", f)
	}
	if f.Pipeline != "" {
		if _, err := a.find(f.Pipeline); err != nil {
			return nil, err
		}
	}
	all := []Position{}
	for _, p := range a.pipelines() {
		if f.Pipeline != "" && f.Pipeline != p.Name {
			continue
		}
		some, err := p.positions(ctx, f.Retries)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (p *Pipeline) positions(ctx context.Context, retries bool) (all []Position, err error) {
	committed, err := p.committed(ctx, "")
	if err != nil || len(committed) == 0 {
		return nil, err
	}
	bounds, boundsErr := p.bounds(ctx)
	for _, c := range committed {
		for _, partition := range slices.Sorted(maps.Keys(c.ranges)) {
			ranges := c.ranges[partition]
			if len(ranges) == 0 || deadletter.IsRetryBatch(partition) && !retries {
				continue
			}
			one := Position{
				Pipeline: p.Name, Partition: partition, Sink: c.sink,
				Next: ranges[0].End(), Committed: ranges.String(), Events: countEvents(ranges),
			}
			one.compare(ranges[len(ranges)-1].End(), bounds, boundsErr)
			all = append(all, one)
		}
	}
	return all, nil
}

// bounds returns the range of positions in the source, if the source can report it.
func (p *Pipeline) bounds(ctx context.Context) (map[string]event.Range, error) {
	bounds := p.Source.Traits().Bounds
	if bounds == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	return bounds(ctx)
}

// compare compares the committed positions, up to end, with the range in the source.
func (p *Position) compare(end uint64, bounds map[string]event.Range, err error) {
	if err != nil {
		p.Source = err.Error()
		return
	}
	if has, ok := bounds[p.Partition]; ok {
		p.Source = has.String()
		lag := has.End() - min(has.End(), max(has.First, end))
		p.Lag = &lag
	}
}

// A committedRanges holds the committed ranges of one sink of a pipeline, by partition.
type committedRanges struct {
	sink   string
	store  sink.PositionStore
	ranges map[string]event.Ranges
}

// committed reads the committed ranges of the sinks of a pipeline; only selects one sink,
// or all if it is empty.
func (p *Pipeline) committed(ctx context.Context, only string) (all []committedRanges, err error) {
	for _, s := range p.Sinks {
		store := s.Sink.Traits().Positions
		if store == nil || only != "" && only != s.Name {
			continue
		}
		ranges, err := store.Positions(ctx)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s, sink %s: %w", p.Name, s.Name, err)
		}
		all = append(all, committedRanges{s.Name, store, ranges})
	}
	return all, nil
}

func countEvents(ranges event.Ranges) (n uint64) {
	for _, r := range ranges {
		n += r.Count
	}
	return n
}

// A Move describes a change of a position. Rewind takes precedence over Next.
type Move struct {
	Pipeline  string  `json:"pipeline"`
	Partition string  `json:"partition,omitempty"` // or the first characters of its name; required if the pipeline has several
	Sink      string  `json:"sink,omitempty"`      // empty for every sink that stores positions
	Next      uint64  `json:"next"`                // the position of the event to continue with
	Rewind    *uint64 `json:"rewind,omitempty"`    // number of events to go back, instead of Next
	Force     bool    `json:"force,omitempty"`     // proceed even if a worker owns the partition; that worker is fenced
	// State says what happens to the unit of a pipeline with a state: StateKeep leaves it as it is,
	// StateEmpty empties it, and the number of a note gives it the content that it had after that. It
	// is required for such a pipeline.
	State  string `json:"state,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"` // change nothing
}

// A MoveResult describes the effect of a Move.
type MoveResult struct {
	Pipeline  string     `json:"pipeline"`
	Partition string     `json:"partition"`
	Next      uint64     `json:"next"`
	Sinks     []SinkMove `json:"sinks"`
	// EmptiedUnit is the unit of the state that the move empties; "" for none.
	EmptiedUnit string `json:"emptied_unit,omitempty"`
	// SetUnit is the unit that the move sets to an earlier note; nil for none.
	SetUnit *UnitMove `json:"set_unit,omitempty"`
}

// A UnitMove describes a unit that is set to its content as of an earlier note.
type UnitMove struct {
	Unit string         `json:"unit"`
	Note state.PastNote `json:"note"`
	// Others are the other partitions of the unit, whose positions stay.
	Others []string `json:"others,omitempty"`
	// Changed are the nodes that were changed; nil before the move.
	Changed *state.NodeChanges `json:"changed,omitempty"`
}

// A SinkMove describes the effect of a Move in one sink.
type SinkMove struct {
	Sink          string `json:"sink"`
	ReadAgain     string `json:"read_again"` // ranges; empty for none
	EventsAgain   uint64 `json:"events_again"`
	Skipped       string `json:"skipped"`
	EventsSkipped uint64 `json:"events_skipped"`
}

// SetPosition changes the position that a pipeline continues from. It refuses to move a
// partition that a worker owns. If the move is forced, it fences that worker, which then
// continues from the new position.
func (a *Admin) SetPosition(ctx context.Context, m Move) (*MoveResult, error) {
	if a.remote != nil {
		return call[*MoveResult](ctx, a.remote, "set-position", m)
	}
	plan, err := a.planMove(ctx, m)
	if err != nil || m.DryRun {
		return plan.result(), err
	}
	release, err := a.reserve(ctx, plan, m.Force)
	defer release()
	if err != nil {
		return nil, err
	}
	if plan.setUnit != nil {
		err = plan.moveUnit(ctx, m.Rewind != nil)
	} else if err = plan.emptyUnit(ctx); err == nil {
		err = plan.setPosition(ctx)
	}
	if err != nil {
		return nil, err
	}
	return plan.result(), a.dropOutbox(plan)
}

// setPosition sets the position at the sinks.
func (m *movePlan) setPosition(ctx context.Context) error {
	for _, c := range m.committed {
		if err := c.store.SetPosition(ctx, m.partition, m.next); err != nil {
			return fmt.Errorf("sink %s: %w", c.sink, err)
		}
	}
	return nil
}

// A movePlan is a checked Move.
type movePlan struct {
	pipeline  *Pipeline
	committed []committedRanges
	partition string
	next      uint64

	emptyState bool
	setUnit    *UnitMove // nil unless the unit is set to a note
}

func (a *Admin) planMove(ctx context.Context, m Move) (*movePlan, error) {
	p, err := a.find(m.Pipeline)
	if err != nil {
		return nil, err
	}
	if err := p.checkMoveOfState(m); err != nil {
		return nil, err
	}
	plan := &movePlan{pipeline: p, next: m.Next, emptyState: m.State == StateEmpty}
	if plan.committed, err = p.committed(ctx, m.Sink); err != nil {
		return nil, err
	}
	if len(plan.committed) == 0 {
		return nil, event.WithHint(fmt.Errorf("pipeline %s has no sink %q that stores positions", p.Name, m.Sink), "perigee position show lists the sinks")
	}
	if plan.partition, err = plan.findPartition(m.Partition); err != nil {
		return nil, err
	}
	if m.Rewind != nil {
		if err := plan.rewind(*m.Rewind); err != nil {
			return nil, err
		}
	}
	return plan, plan.planUnit(ctx, m)
}

// findPartition returns the partition whose name begins with prefix, or the only partition.
func (m *movePlan) findPartition(prefix string) (string, error) {
	matches := map[string]bool{}
	for _, c := range m.committed {
		for partition := range c.ranges {
			if partition == prefix {
				return prefix, nil
			}
			if strings.HasPrefix(partition, prefix) && (prefix != "" || !deadletter.IsRetryBatch(partition)) {
				matches[partition] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(matches))
	switch len(names) {
	case 0:
		return "", event.WithHint(fmt.Errorf("no sink of pipeline %s has a position of partition %q", m.pipeline.Name, prefix), "perigee position show lists the partitions")
	case 1:
		return names[0], nil
	}
	return "", event.WithHint(fmt.Errorf("pipeline %s has %d matching partitions", m.pipeline.Name, len(names)), "choose one with --partition: "+strings.Join(names, ", "))
}

// rewind sets next to a number of events before the first position that a sink has not
// committed.
func (m *movePlan) rewind(events uint64) error {
	var ends []uint64
	for _, c := range m.committed {
		if ranges := c.ranges[m.partition]; len(ranges) > 0 {
			ends = append(ends, ranges[0].End())
		}
	}
	if len(ends) > 0 {
		m.next = slices.Min(ends)
	}
	if events > m.next {
		return fmt.Errorf("cannot rewind %d events: only %d precede this position", events, m.next)
	}
	m.next -= events
	return nil
}

func (m *movePlan) result() *MoveResult {
	if m == nil {
		return nil
	}
	r := &MoveResult{Pipeline: m.pipeline.Name, Partition: m.partition, Next: m.next, SetUnit: m.setUnit}
	if m.emptyState {
		r.EmptiedUnit = m.pipeline.unitOf(m.partition)
	}
	for _, c := range m.committed {
		committed := c.ranges[m.partition]
		again := committed.Intersect(event.Ranges{{First: m.next, Count: math.MaxUint64 - m.next}})
		var skipped event.Ranges
		if len(committed) > 0 {
			first := committed[0].First
			skipped = committed.Missing(event.Range{First: first, Count: max(first, m.next) - first})
		}
		r.Sinks = append(r.Sinks, SinkMove{c.sink, again.String(), countEvents(again), skipped.String(), countEvents(skipped)})
	}
	return r
}

// moveLease is the lease on a partition during a move: no worker can take it over meanwhile. A move that
// takes long renews it.
const moveLease = 10 * time.Second

// reserve keeps workers from the partition until release is called. It fails if a worker
// owns the partition, unless the move is forced.
func (a *Admin) reserve(ctx context.Context, m *movePlan, force bool) (release func(), err error) {
	const hint = "pause the pipeline first (perigee pause), or fence the worker with --force"
	release = func() {}
	if force {
		return release, nil
	}
	if p := m.pipeline.Running; p != nil && p.Stats().OpenPartitions > 0 {
		return release, event.WithHint(fmt.Errorf("pipeline %s is running in the engine of data folder %s", p.Name(), a.data), hint)
	}
	for _, s := range m.pipeline.Sinks {
		leases := s.Sink.Traits().Leases
		if leases == nil {
			continue
		}
		const me = "perigee position"
		one := []string{m.leaseName()}
		holders, err := leases.AcquireLeases(ctx, one, me, moveLease)
		if err == nil && holders[0] != me {
			err = event.WithHint(fmt.Errorf("worker %s has the lease of partition %s", holders[0], m.partition), hint)
		}
		stop := renewLease(ctx, leases, one, me)
		return func() {
			stop()
			leases.ReleaseLeases(ctx, one, me) // or the lease expires
		}, err
	}
	return release, nil
}

// renewLease renews the lease of a move until stop is called. If that fails, the epochs of partition and
// unit still keep two workers apart.
func renewLease(ctx context.Context, leases sink.LeaseStore, names []string, me string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			select {
			case <-time.After(moveLease / 3):
				_, _ = leases.AcquireLeases(ctx, names, me, moveLease)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// leaseName returns the name of the lease under which workers read the partition: with a state, that
// of its unit.
func (m *movePlan) leaseName() string {
	if m.pipeline.State != nil {
		return m.pipeline.unitOf(m.partition)
	}
	return m.partition
}

// dropOutbox drops the stored outputs that the outbox would still write to the sinks.
func (a *Admin) dropOutbox(m *movePlan) error {
	if p := m.pipeline.Running; p != nil {
		return p.DiscardOutbox(m.partition)
	}
	if !outbox.Exists(a.data) {
		return nil
	}
	store, err := outbox.Open(a.data)
	if err != nil {
		return err
	}
	return errors.Join(store.RemovePartition(m.pipeline.Name, m.partition), store.Close())
}
