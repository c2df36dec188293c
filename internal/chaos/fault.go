package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/pipeline"
)

// passingsMost is how often a point is passed at most before the kill there.
const passingsMost = 20

// do does one fault. When it returns, every worker runs, and every server.
func (s *stage) do(ctx context.Context, f Fault) error {
	if err := s.alive(); err != nil {
		return err
	}
	w := s.workers[s.random.IntN(len(s.workers))]
	if f.Kind != KillAtPoint {
		if err := s.work(ctx); err != nil {
			return err
		}
	}
	switch f.Kind {
	case KillWorker:
		s.kill(w, f)
		return s.revive(w)
	case KillAtPoint:
		return s.killAtPoint(ctx, f)
	case KillForGood:
		return s.killForGood(ctx, w, f)
	case KillRedis:
		s.done(f, "Redis")
		return s.again(ctx, s.redis, nil)
	case KillDatabase:
		return s.killDatabase(ctx, w, f)
	case Freeze:
		return s.freeze(ctx, w, f)
	case RestoreRedis:
		return s.restoreRedis(ctx, f)
	case RestoreDatabase:
		return s.restoreDatabase(ctx, f)
	}
	return s.disturb(ctx, w, f)
}

// done counts a fault.
func (s *stage) done(f Fault, format string, args ...any) {
	s.note("%v: %s", f, fmt.Sprintf(format, args...))
	s.count(f.String(), f.Kind.kills())
}

func (r *Runner) count(name string, kills int64) {
	r.Tally.Faults[name]++
	r.kills.Add(kills)
	r.Tally.Kills += kills
}

// work lets the workers work for a while, mostly a short one.
func (s *stage) work(ctx context.Context) error {
	return pause(ctx, 60*time.Millisecond+min(time.Second, time.Duration(s.random.ExpFloat64()*float64(150*time.Millisecond))))
}

func (s *stage) kill(w *worker, f Fault) {
	s.done(f, "worker %d", w.number)
	w.engine.Kill()
	w.armed = nil
}

// revive starts a worker that is dead. If the next fault is a kill at a point, this
// is who will die there.
func (s *stage) revive(w *worker) error {
	next := s.upcoming
	if next == nil || next.Kind != KillAtPoint || next.Point == pipeline.BeforeReplay || s.armed() != nil {
		return w.start(nil, 0)
	}
	return w.start(next, 1+s.random.IntN(passingsMost))
}

// armed is the worker that will kill itself.
func (s *stage) armed() *worker {
	i := slices.IndexFunc(s.workers, func(w *worker) bool { return w.armed != nil })
	if i < 0 {
		return nil
	}
	return s.workers[i]
}

// killAtPoint waits until the worker that is armed has killed itself.
func (s *stage) killAtPoint(ctx context.Context, f Fault) error {
	w := s.armed()
	if w == nil {
		w = s.workers[s.random.IntN(len(s.workers))]
		if err := s.arm(ctx, w, f); err != nil {
			return err
		}
	}
	s.note("worker %d is to kill itself %s", w.number, f.Point)
	select {
	case <-w.engine.Ended():
		s.done(f, "worker %d", w.number)
		w.armed = nil
	case <-time.After(5 * time.Second):
		s.kill(w, Fault{Kind: KillWorker}) // it had nothing to do, or not that
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.revive(w)
}

// arm kills a worker and starts it again armed. What is to be replayed from the
// outbox has first to be left there, by a kill between two sinks.
func (s *stage) arm(ctx context.Context, w *worker, f Fault) error {
	s.kill(w, Fault{Kind: KillWorker})
	passing := 1 + s.random.IntN(passingsMost)
	if f.Point == pipeline.BeforeReplay {
		passing = 1
		between := Fault{Kind: KillAtPoint, Point: pipeline.AfterCommit}
		if err := w.start(&between, 1+2*s.random.IntN(passingsMost/2)); err != nil {
			return err
		}
		if err := s.killAtPointUnarmed(ctx, w, between); err != nil {
			return err
		}
	}
	return w.start(&f, passing)
}

func (s *stage) killAtPointUnarmed(ctx context.Context, w *worker, f Fault) error {
	select {
	case <-w.engine.Ended():
		s.done(f, "worker %d", w.number)
	case <-time.After(5 * time.Second):
		s.kill(w, Fault{Kind: KillWorker})
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

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

// killDatabase kills one, or a worker when the only store is in it.
func (s *stage) killDatabase(ctx context.Context, w *worker, f Fault) error {
	if len(s.databases) == 0 {
		s.kill(w, Fault{Kind: KillWorker})
		return s.revive(w)
	}
	d := s.databases[s.random.IntN(len(s.databases))]
	s.note("%v: %s", f, d.kind)
	s.count("kill "+d.kind, 1)
	return s.again(ctx, d, nil)
}

// again kills a server and starts it again: sometimes before anybody notices.
func (s *stage) again(ctx context.Context, server server, meanwhile func() error) error {
	if err := server.Kill(); err != nil {
		return err
	}
	if s.random.IntN(2) == 0 {
		if err := pause(ctx, time.Duration(s.random.IntN(300))*time.Millisecond); err != nil {
			return err
		}
	}
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return err
		}
	}
	return server.Start(ctx)
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

// disturb does something to the connections of a worker, and puts it right again.
func (s *stage) disturb(ctx context.Context, w *worker, f Fault) error {
	all := w.proxies()
	p := all[s.random.IntN(len(all))]
	s.done(f, "worker %d", w.number)
	switch f.Kind {
	case Cut:
		p.cut()
	case CutPacket:
		p.play(halfPacket)
	case LoseReply:
		p.play(noReply)
	case Stall:
		p.stall(false)
		defer p.resume()
		return pause(ctx, time.Duration(s.random.ExpFloat64()*float64(800*time.Millisecond)))
	case Delay:
		p.slow(time.Duration(1+s.random.IntN(40)) * time.Millisecond)
		defer p.slow(0)
		return pause(ctx, 500*time.Millisecond)
	}
	return pause(ctx, 100*time.Millisecond)
}

// saveRedis copies what Redis has written so far, while it runs: the file of
// commands is whole up to some command.
func (s *stage) saveRedis() error {
	to := filepath.Join(s.folder, fmt.Sprintf("snapshot-%d", len(s.happened)))
	if err := copyFiles(files(s.redis), to); err != nil {
		return err
	}
	if s.snapshot != "" {
		if err := os.RemoveAll(s.snapshot); err != nil {
			return err
		}
	}
	s.snapshot = to
	s.note("snapshot of Redis")
	return nil
}

// restoreRedis sets Redis back to the snapshot under running workers and producers.
func (s *stage) restoreRedis(ctx context.Context, f Fault) error {
	s.done(f, "Redis")
	if err := s.redis.Kill(); err != nil {
		return err
	}
	return s.producer.setBack(ctx, func() error {
		if err := os.RemoveAll(files(s.redis)); err != nil {
			return err
		}
		if err := copyFiles(s.snapshot, files(s.redis)); err != nil {
			return err
		}
		return s.redis.Start(ctx)
	})
}
