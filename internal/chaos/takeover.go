package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// killForGood kills a worker that stays away until others have its partitions.
func (s *stage) killForGood(ctx context.Context, w *worker, f Fault) error {
	held, err := s.leases(ctx, w)
	if err != nil {
		return err
	}
	s.kill(w, f)
	if err := s.takenOver(ctx, w, held); err != nil {
		return err
	}
	return s.revive(w)
}

// leases are the keys that a worker has a lease of, in whatever generation.
func (s *stage) leases(ctx context.Context, w *worker) ([]string, error) {
	d := s.leaser()
	if d == nil {
		return nil, nil
	}
	name, err := w.name()
	if err != nil {
		return nil, err
	}
	held, err := d.texts(ctx, d.dialect.leases, name)
	for i := range held {
		held[i], _, _ = strings.Cut(held[i], "@")
	}
	return held, err
}

// leaser is the database that has the leases: that of the first sink that can.
func (s *stage) leaser() *database {
	for _, sink := range s.round.Pipeline.Sinks {
		if d := s.database(sink.Kind); d != nil {
			return d
		}
	}
	return nil
}

// takenOver waits until somebody else has a worker's partitions, and gets on with them.
func (s *stage) takenOver(ctx context.Context, w *worker, held []string) error {
	if len(held) == 0 {
		return nil
	}
	began, waiting := time.Now(), slices.Clone(held)
	err := until(ctx, fmt.Sprintf("the partitions of worker %d are taken over", w.number), func() (bool, error) {
		for _, other := range s.workers {
			if other == w {
				continue
			}
			theirs, err := s.leases(ctx, other)
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
	before, err := s.heads(ctx)
	if err != nil {
		return err
	}
	err = until(ctx, fmt.Sprintf("others get on with the partitions of worker %d", w.number), func() (bool, error) {
		now, err := s.heads(ctx)
		return err == nil && !slices.ContainsFunc(held, func(key string) bool { return now[key] == before[key] }), err
	})
	if err == nil {
		took := time.Since(began)
		s.Tally.Takeovers = append(s.Tally.Takeovers, took)
		s.note("taken over after %.1f s", took.Seconds())
	}
	return err
}

// freeze stops a worker inside a transaction, until others have its partitions and
// get on with them. What the worker has still to say, or to hear, stays on its way
// as long.
func (s *stage) freeze(ctx context.Context, w *worker, f Fault) error {
	held, err := s.leases(ctx, w)
	if err != nil {
		return err
	}
	inside, err := s.enter(ctx, w)
	if err != nil {
		return err
	}
	if err := w.freeze(); err != nil {
		return err
	}
	if !inside {
		f.Kind = "freeze worker, others take over"
	}
	s.done(f, "worker %d", w.number)
	err = s.takenOver(ctx, w, held)
	if s.random.IntN(2) == 0 { // before the worker knows that it was away
		w.honest()
	}
	if thawed := w.thaw(); err == nil {
		err = thawed
	}
	w.honest()
	return err
}

// enter holds a worker inside a transaction: by half of a statement, or by the
// answer to one.
func (s *stage) enter(ctx context.Context, w *worker) (inside bool, err error) {
	for try := range 10 {
		for _, p := range w.databases {
			if try%2 == 0 {
				p.play(halfBurst)
			} else {
				p.stall(true)
			}
		}
		if inside, err = s.inTransaction(ctx); inside || err != nil {
			return inside, err
		}
		w.honest()
		if err := s.work(ctx); err != nil {
			return false, err
		}
	}
	return false, nil
}

// inTransaction tells whether a transaction stays open.
func (s *stage) inTransaction(ctx context.Context) (bool, error) {
	var before []string
	for look := range 3 {
		if err := pause(ctx, 40*time.Millisecond); err != nil {
			return false, err
		}
		var now []string
		for _, d := range s.databases {
			open, err := d.texts(ctx, d.transactions)
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
