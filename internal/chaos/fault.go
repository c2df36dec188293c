package chaos

import (
	"context"
	"fmt"
	"slices"
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
