package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// listInterval is how often the source is asked for its partitions.
const listInterval = time.Second

// A supervisor runs one goroutine per partition of a pipeline. It assigns the
// partitions that the source lists, and the batch of requested retries; partitions
// shared by lease are assigned by the lease manager. It stops when the source is
// exhausted or everything is drained.
type supervisor struct {
	p       *Pipeline
	ctx     context.Context // ends all work
	reading context.Context // ends reading
	leasing bool            // a sink keeps leases

	exits       chan exit
	listings    chan listing
	leaseErrors chan error // of the lease manager, permanent
	listers     sync.WaitGroup
	listPending bool
	exitCount   int
	moves       backoff

	mu          sync.Mutex
	listed      []string        // partitions of the last listing; nil before the first
	unitNames   map[string]bool // units whose timers run: those of listed partitions, and those that the home had
	retryBatch  string          // the one of them that is a batch of retries, or ""
	exhausted   map[string]bool // of those listed
	assignments map[string]*assignment
}

// An assignment is a partition that this process works on.
type assignment struct {
	partition   string
	retries     bool // a batch of requested retries
	timers      bool // those of a unit
	orphan      bool // not listed any more; only the outbox has entries of it
	leased      bool
	ctx         context.Context
	cancel      context.CancelCauseFunc
	reading     context.Context
	stopReading context.CancelFunc
	moving      atomic.Bool // its partition changed its identity
}

// An exit is the end of an assignment.
type exit struct {
	*assignment
	err error // nil if the partition is exhausted or reading stopped
}

// A listing is the source's answer to which partitions it has, with the batch of
// retries to run.
type listing struct {
	partitions []string
	retryBatch string
	units      []string // that the home has; only in the first listing
	err        error
	exitCount  int // at the time of the question
}

// errLeaseLost cancels an assignment whose lease expired or moved to another
// worker.
var errLeaseLost = errors.New("the lease was lost")

func newSupervisor(p *Pipeline, ctx, reading context.Context) *supervisor {
	return &supervisor{
		p: p, ctx: ctx, reading: reading,
		exits: make(chan exit), listings: make(chan listing, 1), leaseErrors: make(chan error, 1),
		exhausted: make(map[string]bool), assignments: make(map[string]*assignment), unitNames: make(map[string]bool),
	}
}

// run returns when the source is exhausted, when reading has stopped and no
// assignment is left, or at a permanent error.
func (s *supervisor) run() (exhausted bool, err error) {
	timer, due := time.NewTimer(0), time.Now()
	defer timer.Stop()
	// listWithin moves the next listing forward, never back: if partitions end all
	// the time, only the source knows why.
	listWithin := func(d time.Duration) {
		if at := time.Now().Add(d); at.Before(due) {
			due = at
			timer.Reset(d)
		}
	}
	readingStopped := s.reading.Done()
	for {
		if s.isIdle() && (s.reading.Err() != nil || exhausted) {
			return exhausted && s.reading.Err() == nil, s.ctx.Err()
		}
		select {
		case <-timer.C:
			s.requestListing()
			due = time.Now().Add(listInterval)
			timer.Reset(listInterval)
		case l := <-s.listings:
			s.listPending = false
			if exhausted, err = s.handleListing(l); err != nil {
				return false, err
			}
			if exhausted {
				s.stopTimers()
				continue
			}
			if l.exitCount != s.exitCount && s.isIdle() {
				listWithin(0) // every assignment has ended since the question
			}
		case e := <-s.exits:
			retryIn, err := s.handleExit(e)
			if _, refused := errors.AsType[*state.RefusedError](err); refused {
				return false, err // it names the unit, which several partitions may need
			}
			if err != nil {
				return false, fmt.Errorf("partition %s: %w", e.partition, err)
			}
			if retryIn > 0 || s.isIdle() {
				listWithin(retryIn)
			}
		case err := <-s.leaseErrors:
			return false, err
		case <-readingStopped:
			readingStopped = nil
		}
	}
}

// requestListing asks the source for its partitions in the background, because the
// answer may take long. It waits while a partition is moving, until the batches
// read under the old name are delivered.
func (s *supervisor) requestListing() {
	if s.listPending || s.reading.Err() != nil || s.isAnyMoving() {
		return
	}
	s.listPending = true
	l := listing{exitCount: s.exitCount}
	s.mu.Lock()
	first := s.listed == nil
	s.mu.Unlock()
	s.listers.Go(func() {
		l.err = catchPanic(func() (err error) {
			if l.partitions, err = s.p.sourcePartitions(s.reading); err != nil {
				return err
			}
			if err := s.p.checkState(s.reading, l.partitions, first); err != nil {
				return err
			}
			if l.retryBatch, err = s.p.retryBatch(s.reading); err != nil || s.p.units == nil || !first {
				return err
			}
			l.units, err = s.p.homeUnits(s.reading)
			return err
		})
		s.listings <- l
	})
}

// handleListing assigns the partitions that are listed, except leased ones. It
// reports whether the source is exhausted. A listing during which a partition began
// to move is dropped: it may have the partition's new name, which must not be read
// before the batches of the old name are delivered.
func (s *supervisor) handleListing(l listing) (exhausted bool, err error) {
	if s.isAnyMoving() {
		return false, nil
	}
	if l.err != nil {
		if s.reading.Err() != nil {
			return false, nil
		}
		return false, l.err
	}
	if first := s.updateListed(l); first {
		if err := s.assignOrphans(); err != nil {
			return false, err
		}
	}
	for name, work := range s.work() {
		if !s.leasing || s.p.units == nil && !s.isLeased(name) {
			s.assignAll(work)
		}
	}
	if l.retryBatch != "" {
		s.assign(&assignment{partition: l.retryBatch, retries: true})
	}
	s.p.status.setListed()
	return !s.p.config.Source.Traits().Growing && l.exitCount == s.exitCount && s.isExhausted(), nil
}

// updateListed stores a listing and forgets exhausted partitions that are gone.
func (s *supervisor) updateListed(l listing) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.listed == nil
	s.listed, s.retryBatch = append([]string{}, l.partitions...), l.retryBatch
	if l.retryBatch != "" {
		s.listed = append(s.listed, l.retryBatch)
	}
	for _, unit := range l.units {
		s.unitNames[unit] = true
	}
	for _, name := range l.partitions {
		if s.p.units != nil {
			s.unitNames[s.p.unitOfPartition(name)] = true
		}
	}
	for name := range s.exhausted {
		if !slices.Contains(s.listed, name) {
			delete(s.exhausted, name)
		}
	}
	if s.p.units != nil {
		open := map[string][]string{}
		for _, name := range l.partitions {
			if unit := s.p.unitOfPartition(name); !s.exhausted[name] {
				open[unit] = append(open[unit], name)
			}
		}
		s.p.units.setPartitions(open)
	}
	return first
}

// assignOrphans assigns partitions that have entries in the outbox and are not
// listed, so that their entries are delivered.
func (s *supervisor) assignOrphans() error {
	if s.p.config.Outbox == nil {
		return nil
	}
	names, err := s.p.config.Outbox.Partitions(s.p.config.Name)
	for _, name := range names {
		if !slices.Contains(s.listed, name) {
			s.assign(&assignment{partition: name, orphan: true})
		}
	}
	return err
}

// work returns what can be assigned, by the name of the lease that it needs where leases are
// kept: each partition of the source that is listed and not exhausted; with a state, all
// partitions of a unit, and its timers. A unit that was refused waits before the next attempt.
func (s *supervisor) work() map[string][]*assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	work := map[string][]*assignment{}
	for _, name := range s.listed {
		if s.exhausted[name] || name == s.retryBatch {
			continue
		}
		lease := name
		if s.p.units != nil {
			lease = s.p.unitOfPartition(name)
		}
		work[lease] = append(work[lease], &assignment{partition: name})
	}
	for unit := range s.unitNames {
		work[unit] = append(work[unit], &assignment{partition: TimersOf(unit), timers: true})
	}
	if s.p.units != nil {
		maps.DeleteFunc(work, func(unit string, _ []*assignment) bool { return s.p.units.isWaiting(unit) })
	}
	return work
}

// knownUnits returns the units of the state, in order.
func (s *supervisor) knownUnits() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.unitNames))
}

// assignAll starts those assignments that were not started, and returns them.
func (s *supervisor) assignAll(work []*assignment) (started []*assignment) {
	for _, a := range work {
		if s.assign(a) {
			started = append(started, a)
		}
	}
	return started
}

// stopTimers ends the timers of all units: the source is exhausted.
func (s *supervisor) stopTimers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.unitNames)
	for _, a := range s.assignments {
		if a.timers {
			a.stopReading()
		}
	}
}

// isLeased reports whether only the holder of its lease works on a partition of a pipeline
// without state.
func (s *supervisor) isLeased(partition string) bool {
	isLocal := s.p.config.Source.Traits().Local
	return s.leasing && !(isLocal != nil && isLocal(partition))
}

// assign starts an assignment. It returns false if the partition is assigned or
// exhausted already, or if reading has stopped.
func (s *supervisor) assign(a *assignment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading.Err() != nil || s.exhausted[a.partition] || s.assignments[a.partition] != nil {
		return false
	}
	a.ctx, a.cancel = context.WithCancelCause(s.ctx)
	a.reading, a.stopReading = context.WithCancel(s.reading)
	context.AfterFunc(a.ctx, a.stopReading)
	s.assignments[a.partition] = a
	s.p.status.addOpening()
	go func() {
		err := catchPanic(func() error { return s.p.runPartition(a) })
		s.exits <- exit{a, err}
	}()
	return true
}

// handleExit removes an assignment that has ended. If retryIn is above 0, the
// source must be asked for its partitions after that time. The error is permanent.
func (s *supervisor) handleExit(e exit) (retryIn time.Duration, err error) {
	defer e.release()
	s.exitCount++
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.assignments, e.partition)
	switch {
	case context.Cause(e.ctx) == errLeaseLost, errors.Is(e.err, errPaused):
	case errors.Is(e.err, sink.ErrFenced):
		s.p.log.Warn("another worker has taken over the partition", "partition", e.partition)
	case errors.Is(e.err, source.ErrMoved):
		s.p.log.Warn("partition moved; listing the partitions again", "partition", e.partition, "reason", e.err)
		// The partition is assigned again only when the source lists it again.
		s.listed = slices.DeleteFunc(s.listed, func(name string) bool { return name == e.partition })
		retryIn = s.moves.next()
	case e.err != nil && !s.othersGoOn(e.err):
		return 0, e.err
	case e.err != nil: // the log and the status show it
	case e.reading.Err() == nil && !e.orphan && !e.timers:
		s.exhausted[e.partition] = true
	}
	return retryIn, nil
}

// othersGoOn reports whether an error concerns a single unit, and the pipeline works on others, or
// may get them from another worker.
func (s *supervisor) othersGoOn(err error) bool {
	_, refused := errors.AsType[*state.RefusedError](err)
	if refused && s.leasing && s.p.config.State.Standby > 0 {
		return true
	}
	return refused && len(s.unitNames) > 1 && (s.leasing || !s.p.units.allRefused(s.unitNames))
}

// release ends the contexts of an assignment.
func (a *assignment) release() {
	a.stopReading()
	a.cancel(nil)
}

// isStopping reports whether a drain or a pause stopped reading, and not the end
// of all work.
func (a *assignment) isStopping() bool { return a.reading.Err() != nil && a.ctx.Err() == nil }

// waitForAssignments waits for the assignments after the supervisor's context has
// ended.
func (s *supervisor) waitForAssignments() {
	for !s.isIdle() {
		e := <-s.exits
		e.release()
		s.mu.Lock()
		delete(s.assignments, e.partition)
		s.mu.Unlock()
	}
	s.listers.Wait()
}

func (s *supervisor) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.assignments) == 0
}

func (s *supervisor) isAnyMoving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.assignments {
		if a.moving.Load() {
			return true
		}
	}
	return false
}

// isExhausted reports whether all listed partitions are exhausted.
func (s *supervisor) isExhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.assignments {
		if !a.timers {
			return false
		}
	}
	return !slices.ContainsFunc(s.listed, func(name string) bool { return !s.exhausted[name] })
}

// isAssigned reports whether an assignment has not ended.
func (s *supervisor) isAssigned(a *assignment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assignments[a.partition] == a
}

// leasableWork returns the work that needs a lease.
func (s *supervisor) leasableWork() map[string][]*assignment {
	work := s.work()
	if s.p.units == nil {
		maps.DeleteFunc(work, func(name string, _ []*assignment) bool { return !s.isLeased(name) })
	}
	for _, assignments := range work {
		for _, a := range assignments {
			a.leased = true
		}
	}
	return work
}
