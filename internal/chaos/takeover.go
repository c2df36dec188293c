package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// killUntilTakeover kills a worker and restarts it after others took its partitions over.
func (s *testbed) killUntilTakeover(ctx context.Context, w *worker, f Fault) error {
	held, err := s.heldLeases(ctx, w)
	if err != nil {
		return err
	}
	s.killWorker(w, f)
	if err := s.waitTakeover(ctx, w, held); err != nil {
		return err
	}
	return s.restartWorker(w)
}

// heldLeases returns the keys that a worker holds leases of, in any generation.
func (s *testbed) heldLeases(ctx context.Context, w *worker) ([]string, error) {
	d := s.leaseDatabase()
	if d == nil {
		return nil, nil
	}
	name, err := w.leaseName()
	if err != nil {
		return nil, err
	}
	held, err := d.leases(ctx, name)
	for i := range held {
		held[i], _, _ = strings.Cut(held[i], "@")
	}
	return held, err
}

// leaseDatabase returns the database with the leases: that of the first sink that holds any.
func (s *testbed) leaseDatabase() *database {
	for _, sink := range s.round.Pipeline.Sinks {
		if d := s.database(sink.Kind); d != nil {
			return d
		}
	}
	return nil
}

// waitTakeover waits until other workers hold a worker's partitions and make progress on them.
func (s *testbed) waitTakeover(ctx context.Context, w *worker, held []string) error {
	if len(held) == 0 {
		return nil
	}
	began, waiting := time.Now(), slices.Clone(held)
	err := waitFor(ctx, fmt.Sprintf("the partitions of worker %d are taken over", w.number), func() (bool, error) {
		for _, other := range s.workers {
			if other == w {
				continue
			}
			theirs, err := s.heldLeases(ctx, other)
			if err != nil {
				return false, err
			}
			waiting = slices.DeleteFunc(waiting, func(key string) bool { return slices.Contains(theirs, key) })
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return err
	}
	before, err := s.listHeads(ctx)
	if err != nil {
		return err
	}
	err = waitFor(ctx, fmt.Sprintf("others get on with the partitions of worker %d", w.number), func() (bool, error) {
		now, err := s.listHeads(ctx)
		return err == nil && !slices.ContainsFunc(held, func(key string) bool { return now[key] == before[key] }), err
	})
	if err == nil {
		took := time.Since(began)
		s.Totals.Takeovers = append(s.Totals.Takeovers, took)
		s.logf("taken over after %.1f s", took.Seconds())
	}
	return err
}

// suspendWorker suspends a worker inside a transaction until others have taken its
// partitions over. Its proxies hold its packets as long.
func (s *testbed) suspendWorker(ctx context.Context, w *worker, f Fault) error {
	held, err := s.heldLeases(ctx, w)
	if err != nil {
		return err
	}
	inside, err := s.holdTransaction(ctx, w)
	if err != nil {
		return err
	}
	if err := w.suspend(); err != nil {
		return err
	}
	if !inside {
		f.Kind = "suspend worker, others take over"
	}
	s.recordFault(f, "worker %d", w.number)
	err = s.waitTakeover(ctx, w, held)
	if s.random.IntN(2) == 0 { // release held packets before the worker resumes
		w.resetProxies()
	}
	if thawed := w.resume(); err == nil {
		err = thawed
	}
	w.resetProxies()
	return err
}

// holdTransaction keeps a worker inside a transaction by holding half of a statement or a
// reply. It reports false when no transaction stayed open in ten tries.
func (s *testbed) holdTransaction(ctx context.Context, w *worker) (inside bool, err error) {
	for try := range 10 {
		for _, p := range w.databases {
			if try%2 == 0 {
				p.injectOnce(holdHalf)
			} else {
				p.stall(true)
			}
		}
		if inside, err = s.inTransaction(ctx); inside || err != nil {
			return inside, err
		}
		w.resetProxies()
		if err := s.runBriefly(ctx); err != nil {
			return false, err
		}
	}
	return false, nil
}

// inTransaction reports whether a transaction stays open over three looks at the databases.
func (s *testbed) inTransaction(ctx context.Context) (bool, error) {
	var before []string
	for look := range 3 {
		if err := sleep(ctx, 40*time.Millisecond); err != nil {
			return false, err
		}
		var now []string
		for _, d := range s.databases {
			open, err := d.transactions(ctx)
			if err != nil {
				return false, err
			}
			now = append(now, open...)
		}
		if look > 0 {
			now = slices.DeleteFunc(now, func(one string) bool { return !slices.Contains(before, one) })
		}
		before = now
	}
	return len(before) > 0, nil
}
