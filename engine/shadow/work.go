package shadow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// failuresMax is how many more samples must fail than succeed until the shadow stops.
const failuresMax = 10

// restMin is the shortest rest of the worker. It works on while it owes less.
const restMin = time.Millisecond

// work compares samples until ctx ends.
func (s *Shadow) work(ctx context.Context) {
	res := event.Result{Outputs: make([]event.Output, len(s.config.Sinks))}
	var owed time.Duration // of rest
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-s.filled:
			began := time.Now()
			s.compare(ctx, one, &res)
			s.release(one)
			if owed += time.Since(began); owed < restMin {
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(owed):
			}
			owed = 0
		}
	}
}

// compare runs the new version on a sample and compares the results. When a limit ends the run early, it
// compares the events before, and skips the others.
func (s *Shadow) compare(ctx context.Context, one *sample, res *event.Result) {
	if one.generation != s.wanted.Load() {
		return // of another version, or sampled before the shadow stopped
	}
	s.clock.Store(&one.in.Time)
	began := time.Now()
	err := run(ctx, s.loaded(), &one.in, res)
	took := time.Since(began)
	s.counts.time.Add(int64(took))
	if ctx.Err() != nil {
		return
	}
	n := one.in.Len()
	if res.Ran < n {
		s.skip(one.generation, n-res.Ran)
		var all event.Result
		all, one.live = one.live, all
		one.live.CopyEvents(&all, &one.in, 0, res.Ran)
	}
	part := one.in.Head(res.Ran)
	s.add(one, &part, res, took)
	s.judge(one.generation, failure(one, res, err))
}

// run runs the new version. A panic is an error.
func run(ctx context.Context, s script.Script, in *event.Batch, res *event.Result) (err error) {
	defer func() {
		if v := recover(); v != nil {
			res.Reset()
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return s.Run(ctx, in, res)
}

// add adds the results of both versions to the report.
func (s *Shadow) add(one *sample, part *event.Batch, res *event.Result, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if part.Len() == 0 || one.generation != s.generation {
		return
	}
	before := s.comparison.Different()
	s.comparison.AddResults(part, [2]*event.Result{&one.live, res}, [2]time.Duration{one.took, took}, s.config.Memory())
	different := s.comparison.Different() - before
	s.counts.different.Add(different)
	s.counts.same.Add(uint64(part.Len()) - different)
}

// failure returns why the new version failed on a sample: it hit a limit of the batch, did not run, or most
// of the events that the live version processed are dead.
func failure(one *sample, res *event.Result, err error) string {
	if limit, ok := errors.AsType[*script.LimitError](err); ok {
		return limit.Error()
	}
	if err != nil {
		return err.Error()
	}
	last := ""
	failed := 0
	for i := range res.Dead {
		if d := &res.Dead[i]; d.Sink == "" {
			failed++
			last = d.Error
		}
	}
	for i := range one.live.Dead {
		if one.live.Dead[i].Sink == "" {
			failed--
		}
	}
	if 2*failed <= res.Ran {
		return ""
	}
	return last
}

// judge stops the shadow after many failures. reason is that of the last one; empty means that a sample
// succeeded.
func (s *Shadow) judge(generation uint64, reason string) {
	s.mu.Lock()
	if generation != s.generation {
		s.mu.Unlock()
		return
	}
	if reason == "" {
		s.failures = max(0, s.failures-1)
	} else {
		s.failures++
	}
	over := s.failures == failuresMax
	s.mu.Unlock()
	if over {
		s.stop(fmt.Sprintf("the new version fails on most events: %s", reason))
	}
}
