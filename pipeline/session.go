package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// closeTimeout bounds how long a reader may take to pass on its acknowledgements
// when it closes. The sinks know what it could not pass on.
const closeTimeout = 3 * time.Second

// A session is the work on a partition between opening and closing it: a writer of
// every sink, a feed, a reader loop and lanes. It ends when the feed is exhausted,
// reading stops, the partition moves, or another worker fences it.
type session struct {
	p           *Pipeline
	assignment  *assignment
	partition   string
	writers     []sink.Writer  // by sink
	ranges      []event.Ranges // by sink: what it had when it was opened; see keepRangesAhead
	feed        feed
	units       []*unit            // that the session uses: that of its partition, or those of its retries
	nextTimer   uint64             // position of the next timer, in the partition of timers
	giveUp      context.CancelFunc // ends the session when one of them is given up
	claims      []*claim           // all of them
	free        chan *claim        // for the reader loop
	claimed     chan *claim        // for the lanes
	sequencer   *sequencer         // nil if no sink needs its outputs in order, and with a state
	scripts     *sequencer         // turns of the script, with a state
	borrowed    sync.WaitGroup     // units that write with the session while they are opened
	writing     sync.Mutex         // held by the one that writes to the sinks other than the home of a state
	moved       atomic.Pointer[error]
	stopReading context.CancelFunc
}

// runPartition runs sessions of a partition until one ends for another reason than
// fencing. With leases, fencing ends it too: the lease decides who continues. It
// returns nil if the partition is exhausted or reading stopped.
func (p *Pipeline) runPartition(a *assignment) error {
	var again backoff
	for !a.isStopping() {
		err := p.runSession(a)
		switch {
		case errors.Is(err, errUnitEnded):
		case errors.Is(err, sink.ErrFenced) && !a.leased:
			p.log.Warn("another worker has taken over the partition; taking it back", "partition", a.partition)
		default:
			return err
		}
		p.status.addOpening()
		sleep(a.reading, again.next())
	}
	p.status.removeOpening()
	return nil
}

func (p *Pipeline) runSession(a *assignment) (err error) {
	s := &session{p: p, assignment: a, partition: a.partition}
	a.moving.Store(false)
	p.counters.open.Add(1)
	defer func() {
		s.close()
		for _, u := range s.units {
			u.release(err)
		}
		p.counters.open.Add(-1)
	}()
	err = s.open(a.reading)
	p.status.removeOpening()
	if err != nil {
		if a.isStopping() {
			return nil // nothing was read, so nothing has to be finished
		}
		return err
	}
	if a.orphan {
		return nil
	}
	p.log.Info("partition opened", "partition", s.partition)
	return s.runWithUnits(a.ctx)
}

// runWithUnits is run, which also ends when a unit that the session uses is given up.
func (s *session) runWithUnits(ctx context.Context) error {
	if s.p.units == nil {
		return s.run(ctx)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	s.giveUp = cancel
	for _, u := range s.units {
		defer context.AfterFunc(u.ctx, cancel)()
	}
	err := s.run(running)
	isEnded := func(u *unit) bool { return u.ctx.Err() != nil }
	if errors.Is(err, context.Canceled) && ctx.Err() == nil && slices.ContainsFunc(s.units, isEnded) {
		return errUnitEnded
	}
	return err
}

// useUnit returns an open unit, which the session uses until it ends.
func (s *session) useUnit(ctx context.Context, name string) (*unit, error) {
	if i := slices.IndexFunc(s.units, func(u *unit) bool { return u.name == name }); i >= 0 {
		return s.units[i], nil
	}
	u, err := s.p.units.acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	s.units = append(s.units, u)
	if s.giveUp != nil {
		context.AfterFunc(u.ctx, s.giveUp)
	}
	return u, nil
}

// open takes over the partition at every sink, delivers its entries of the outbox,
// and opens the feed behind the ranges that all sinks have.
func (s *session) open(ctx context.Context) (err error) {
	if name, ok := s.p.unitOf(s.assignment); ok {
		if _, err := s.useUnit(ctx, name); err != nil {
			return err
		}
	}
	if err := s.openWriters(ctx, false); err != nil {
		return err
	}
	done, err := s.replayOutbox(ctx)
	if err != nil || s.assignment.orphan {
		return err
	}
	if err := s.openFeed(ctx, done); err != nil {
		return err
	}
	if n := len(done); n > 0 {
		s.nextTimer = done[n-1].End()
	}
	if !s.assignment.retries && !s.assignment.timers {
		s.p.counters.countOpened(s.partition, done)
	}
	s.keepRangesAhead(done)
	if s.p.units != nil {
		s.p.units.addSession(s)
	}
	return nil
}

// openWriters opens the partition at every sink, or at those other than the home.
func (s *session) openWriters(ctx context.Context, others bool) error {
	s.writers, s.ranges = make([]sink.Writer, len(s.p.config.Sinks)), make([]event.Ranges, len(s.p.config.Sinks))
	for i, to := range s.p.config.Sinks {
		if others && i == s.p.config.Home {
			continue
		}
		err := s.p.sinks[i].do(ctx, func() (err error) {
			s.writers[i], s.ranges[i], err = to.Sink.Open(ctx, s.partition)
			return err
		})
		if err != nil {
			return fmt.Errorf("open sink %s: %w", to.Name, err)
		}
	}
	return nil
}

// commonRanges returns the ranges that every sink has. Sinks that do not remember
// ranges are written first, so they have what the others remember. With a state it returns
// those of the home, which has the outputs for the others.
func (s *session) commonRanges() event.Ranges {
	if s.p.units != nil {
		return s.ranges[s.p.config.Home]
	}
	var common event.Ranges
	first := true
	for i := range s.p.config.Sinks {
		switch {
		case s.p.config.Sinks[i].isAtLeastOnce():
		case first:
			common, first = s.ranges[i], false
		default:
			common = common.Intersect(s.ranges[i])
		}
	}
	return common
}

// close closes what is open. Its errors are only logged: what was committed is
// durable, and the rest will be read again.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.assignment.ctx), closeTimeout)
	defer cancel()
	s.p.counters.lags.remove(s.partition)
	s.p.limits.abandon(s.claims)
	if s.p.units != nil {
		s.p.units.removeSession(s)
	}
	if s.feed != nil {
		s.warn("close source", s.feed.close(ctx))
	}
	for _, w := range s.writers {
		if w != nil {
			s.warn("close sink", w.Close())
		}
	}
}

func (s *session) warn(action string, err error) {
	if err != nil {
		s.p.log.Warn(action+" failed", "partition", s.partition, "error", err)
	}
}

// run runs the reader loop, the lanes and the health checks until the reader loop
// has ended and the lanes have delivered what it claimed.
func (s *session) run(ctx context.Context) error {
	lanes := s.p.config.Lanes
	claims := lanes + 1 // one is read into while every lane is busy
	switch {
	case s.assignment.timers:
		lanes, claims = 1, 1 // what is due next is known when the last ones have run
	case s.assignment.retries && s.p.units != nil:
		lanes, claims = 1, 2 // batches of several units have no other common order
	}
	s.free, s.claimed = make(chan *claim, claims), make(chan *claim, claims)
	for range claims {
		c := s.newClaim()
		s.claims = append(s.claims, c)
		s.free <- c
	}
	switch {
	case s.p.units != nil:
		s.scripts = newSequencer()
	case s.p.isOrdered():
		s.sequencer = newSequencer()
	}
	s.p.counters.lags.add(s.partition, len(s.writers))
	group, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(s.assignment.reading)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	s.stopReading = stop
	checking, stopChecks := context.WithCancel(ctx)
	defer stopChecks()
	var lanesRunning sync.WaitGroup
	group.Go(func() error { return catchPanic(func() error { return s.readBatches(ctx, reading) }) })
	for range lanes {
		lanesRunning.Add(1)
		group.Go(func() error {
			defer lanesRunning.Done()
			return catchPanic(func() error { return s.runLane(ctx) })
		})
	}
	group.Go(func() error { return catchPanic(func() error { return s.checkHealth(checking) }) })
	group.Go(func() error { lanesRunning.Wait(); stopChecks(); return nil })
	if err := group.Wait(); err != nil {
		return err
	}
	if moved := s.moved.Load(); moved != nil {
		return *moved
	}
	return nil
}

func (s *session) newClaim() *claim {
	return &claim{
		batch:  event.Batch{Partition: s.partition},
		result: event.Result{Outputs: make([]event.Output, len(s.writers))},
	}
}

// stopMoved stops reading because the partition has changed its identity. The
// batches that were read are delivered under the old name.
func (s *session) stopMoved(err error) {
	s.moved.Store(&err)
	s.assignment.moving.Store(true)
	s.stopReading()
}

// checkHealth asks the sinks, as often as leases are renewed, whether they still
// have what was committed. So a sink that was reset to an older state is noticed
// even while nothing is written. It returns nil when ctx ends, and otherwise what
// a sink has lost.
func (s *session) checkHealth(ctx context.Context) error {
	interval := s.p.config.Lease / 3
	for sleep(ctx, interval); ctx.Err() == nil; sleep(ctx, interval) {
		for i, w := range s.writers {
			if err := verifyWriter(ctx, w, interval); err != nil {
				return fmt.Errorf("check sink %s: %w", s.p.config.Sinks[i].Name, err)
			}
		}
	}
	return nil
}

// verifyWriter returns only permanent errors and ErrFenced. An unreachable sink
// makes writes fail, which retries handle.
func verifyWriter(ctx context.Context, w sink.Writer, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.Verify(ctx)
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		return err
	}
	return nil
}
