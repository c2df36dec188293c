package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// A share is the partitions that this worker holds the leases of. It renews
// them, gives up what is more than its fair share and takes over what is free.
type share struct {
	c      *crew
	leases sink.LeaseStore
	worker string
	lease  time.Duration
	held   map[string]*tenure
	asked  time.Time // when leases were last renewed
	sick   bool      // the last attempt failed
}

// A tenure is one lease. Its timer dismisses the post before the lease is over.
type tenure struct {
	post *post
	over *time.Timer
}

const beat = time.Second // between two looks at the leases, at most

// leaserIn returns the index of the sink that keeps leases, or -1.
func leaserIn(sinks []Sink) int {
	return slices.IndexFunc(sinks, func(s Sink) bool {
		return s.Sink.Traits().Leases != nil
	})
}

// join makes the worker one of those that share the partitions, if there is a
// sink that keeps leases. leave gives up what it holds, after all its work.
func (c *crew) join() (leave func()) {
	i := leaserIn(c.p.config.Sinks)
	if i < 0 {
		return func() {}
	}
	c.shared = true
	s := &share{
		c: c, leases: c.p.config.Sinks[i].Sink.Traits().Leases, worker: c.p.config.Worker, lease: c.p.config.Lease,
		held: make(map[string]*tenure),
	}
	return s.start()
}

func (s *share) start() (leave func()) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.c.ctx))
	var tending sync.WaitGroup
	tending.Go(func() {
		if err := guard(func() error { return s.tend(ctx) }); err != nil {
			s.c.failed <- err
		}
	})
	return func() {
		stop()
		tending.Wait()
		s.leave(context.WithoutCancel(ctx))
	}
}

// tend looks after the leases until ctx ends. It returns an error that time
// does not mend.
func (s *share) tend(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.look(ctx)
		if event.IsPermanent(err) {
			return fmt.Errorf("share partitions: %w", err)
		}
		if ctx.Err() == nil {
			s.note(err)
		}
		sleep(ctx, min(beat, s.lease/10))
	}
	return nil
}

// note keeps the state of the pipeline what it is with the leases.
func (s *share) note(err error) {
	trouble := s.c.p.leases
	switch {
	case err != nil:
		if !s.sick {
			trouble.begin()
		}
		trouble.failed(err)
	case s.sick:
		trouble.end(nil)
	}
	s.sick = err != nil
}

// look is one round. Each call to the place of the leases is bounded, so that
// one that hangs does not keep the others from being renewed.
func (s *share) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.lease/3)
	defer cancel()
	if err := errors.Join(s.renew(ctx), s.tidy(ctx)); err != nil {
		return err
	}
	workers, err := s.leases.Heartbeat(ctx, s.worker, s.lease)
	if err != nil {
		return fmt.Errorf("say that this worker is alive: %w", err)
	}
	unfinished := s.c.unfinished()
	fair := (len(unfinished) + max(workers, 1) - 1) / max(workers, 1)
	defer func() { s.c.p.tenancy.set(workers, len(s.held), len(unfinished)) }()
	if len(s.held) > fair {
		s.giveUp()
		return nil
	}
	return s.take(ctx, unfinished, fair)
}

// tidy releases the leases of those that are not at work any more.
func (s *share) tidy(ctx context.Context) error {
	for partition, t := range s.held {
		if s.c.atWork(t.post) {
			continue
		}
		t.over.Stop()
		if err := s.leases.ReleaseLease(ctx, partition, s.worker); err != nil {
			return fmt.Errorf("release the lease of partition %s: %w", partition, err)
		}
		delete(s.held, partition)
	}
	return nil
}

func (s *share) renew(ctx context.Context) error {
	if time.Since(s.asked) < s.lease/3 {
		return nil
	}
	began := time.Now()
	for partition, t := range s.held {
		mine, start, err := s.ask(ctx, partition)
		if err != nil {
			return err
		}
		if !mine {
			t.over.Stop()
			t.post.dismiss(errLeaseOver)
			continue
		}
		t.over.Reset(s.tenureFrom(start))
	}
	s.asked = began
	return nil
}

// ask takes or renews a lease, which lasts from start at the earliest.
func (s *share) ask(ctx context.Context, partition string) (mine bool, start time.Time, err error) {
	start = time.Now()
	holder, err := s.leases.AcquireLease(ctx, partition, s.worker, s.lease)
	if err != nil {
		return false, start, fmt.Errorf("ask for the lease of partition %s: %w", partition, err)
	}
	return holder == s.worker, start, nil
}

// tenureFrom is how long to work on a lease from now: it ends well before the
// lease does, so that what is under way ends before anybody takes over.
func (s *share) tenureFrom(start time.Time) time.Duration {
	return time.Until(start.Add(s.lease * 3 / 4))
}

// giveUp drains one partition, unless one is on its way already.
func (s *share) giveUp() {
	var any *post
	for _, t := range s.held {
		if t.post.halted() {
			return
		}
		any = t.post
	}
	s.c.p.log.Info("giving a partition up: others have too few", "partition", any.partition)
	any.drain()
}

// take asks for leases in any order, so that workers do not all go for the same.
func (s *share) take(ctx context.Context, unfinished []string, fair int) error {
	for _, i := range rand.Perm(len(unfinished)) {
		partition := unfinished[i]
		if len(s.held) >= fair || s.c.reading.Err() != nil {
			return nil
		}
		if s.held[partition] != nil {
			continue
		}
		mine, start, err := s.ask(ctx, partition)
		if err != nil {
			return err
		}
		if !mine {
			continue
		}
		hired := s.c.hire(partition, &post{leased: true})
		if hired == nil {
			return s.leases.ReleaseLease(ctx, partition, s.worker)
		}
		over := time.AfterFunc(s.tenureFrom(start), func() {
			s.c.p.log.Warn("the lease could not be renewed: work on the partition stops before it is over", "partition", partition)
			hired.dismiss(errLeaseOver)
		})
		s.held[partition] = &tenure{hired, over}
	}
	return nil
}

// leave gives everything up. What cannot be said runs out.
func (s *share) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(closeTime, s.lease))
	defer cancel()
	var errs []error
	for partition, t := range s.held {
		t.over.Stop()
		errs = append(errs, s.leases.ReleaseLease(ctx, partition, s.worker))
	}
	_, err := s.leases.Heartbeat(ctx, s.worker, 0)
	if err := errors.Join(append(errs, err)...); err != nil {
		s.c.p.log.Warn("giving leases up failed: they run out", "error", err)
	}
	if s.sick {
		s.c.p.leases.end(context.Canceled)
	}
	s.c.p.tenancy.set(0, 0, 0)
}

// unfinished lists the partitions that there is a lease for and something to do.
func (c *crew) unfinished() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.listed), func(name string) bool {
		return c.finished[name] || !c.leases(name)
	})
}

// atWork tells whether a post has not ended.
func (c *crew) atWork(p *post) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.posts[p.partition] == p
}

// A tenancy is what is known of those who share the partitions.
type tenancy struct {
	mu            sync.Mutex
	workers, held int
	elsewhere     int
}

func (t *tenancy) set(workers, held, unfinished int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers, t.held, t.elsewhere = workers, held, max(0, unfinished-held)
}

func (t *tenancy) now() (workers, held, elsewhere int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workers, t.held, t.elsewhere
}
