package pipeline

import (
	"context"
	"errors"
	"fmt"
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
	claims      []*claim    // all of them
	free        chan *claim // for the reader loop
	claimed     chan *claim // for the lanes
	sequencer   *sequencer  // nil if no sink needs its outputs in order
	moved       atomic.Pointer[error]
	stopReading context.CancelFunc
}

// runPartition runs sessions of a partition until one ends for another reason than
// fencing. With leases, fencing ends it too: the lease decides who continues. It
// returns nil if the partition is exhausted or reading stopped.
func (p *Pipeline) runPartition(a *assignment) error {
	var fenced backoff
	for !a.isStopping() {
		err := p.runSession(a)
		if a.leased || !errors.Is(err, sink.ErrFenced) {
			return err
		}
		p.status.addOpening()
		p.log.Warn("another worker has taken over the partition; taking it back", "partition", a.partition)
		sleep(a.reading, fenced.next())
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
	return s.run(a.ctx)
}

// open takes over the partition at every sink, delivers its entries of the outbox,
// and opens the feed behind the ranges that all sinks have.
func (s *session) open(ctx context.Context) error {
	for i, to := range s.p.config.Sinks {
		err := s.p.sinks[i].do(ctx, func() error {
			writer, ranges, err := to.Sink.Open(ctx, s.partition)
			if err == nil {
				s.writers, s.ranges = append(s.writers, writer), append(s.ranges, ranges)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("open sink %s: %w", to.Name, err)
		}
	}
	done, err := s.replayOutbox(ctx)
	if err != nil || s.assignment.orphan {
		return err
	}
	if err := s.openFeed(ctx, done); err != nil {
		return err
	}
	if !s.assignment.retries {
		s.p.counters.countOpened(s.partition, done)
	}
	s.keepRangesAhead(done)
	return nil
}

// commonRanges returns the ranges that every sink has. Sinks that do not remember
// ranges are written first, so they have what the others remember.
func (s *session) commonRanges() event.Ranges {
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
	if s.feed != nil {
		s.warn("close source", s.feed.close(ctx))
	}
	for _, w := range s.writers {
		s.warn("close sink", w.Close())
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
	s.free, s.claimed = make(chan *claim, claims), make(chan *claim, claims)
	for range claims {
		c := s.newClaim()
		s.claims = append(s.claims, c)
		s.free <- c
	}
	if s.p.isOrdered() {
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
