package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/pipeline"
)

// maxPassings bounds how often a worker passes a point before it kills itself there.
const maxPassings = 20

// injectFault injects one fault. When it returns, every worker and server runs again.
func (s *testbed) injectFault(ctx context.Context, f Fault) error {
	if err := s.checkWorkers(); err != nil {
		return err
	}
	w := s.workers[s.random.IntN(len(s.workers))]
	if f.Kind != KillAtPoint {
		if err := s.runBriefly(ctx); err != nil {
			return err
		}
	}
	switch f.Kind {
	case KillWorker:
		s.killWorker(w, f)
		return s.restartWorker(w)
	case KillAtPoint:
		return s.killAtPoint(ctx, f)
	case KillUntilTakeover:
		return s.killUntilTakeover(ctx, w, f)
	case KillChildren: // of isolated scripts
		s.recordFault(f, "%d of worker %d", w.engine.KillChildren(), w.number)
		return nil
	case KillRedis:
		s.recordFault(f, "Redis")
		return s.restartServer(ctx, s.redis, nil)
	case KillDatabase:
		return s.killDatabase(ctx, w, f)
	case SuspendInTransaction:
		return s.suspendWorker(ctx, w, f)
	case RestoreRedis:
		return s.restoreRedis(ctx, f)
	case RestoreDatabase:
		return s.restoreDatabase(ctx, f)
	}
	return s.disturbNetwork(ctx, w, f)
}

// recordFault logs and counts a fault.
func (s *testbed) recordFault(f Fault, format string, args ...any) {
	s.logf("%v: %s", f, fmt.Sprintf(format, args...))
	s.countFault(f.String(), f.Kind.killCount())
}

func (r *Runner) countFault(name string, kills int64) {
	r.Totals.Faults[name]++
	r.kills.Add(kills)
	r.Totals.Kills += kills
}

// runBriefly lets events flow for a random time, usually a fraction of a second.
func (s *testbed) runBriefly(ctx context.Context) error {
	return sleep(ctx, 60*time.Millisecond+min(time.Second, time.Duration(s.random.ExpFloat64()*float64(150*time.Millisecond))))
}

func (s *testbed) killWorker(w *worker, f Fault) {
	s.recordFault(f, "worker %d", w.number)
	w.engine.Kill()
	w.armedFor = nil
}

// restartWorker starts a killed worker. If the next fault is a kill at a point, the
// worker is armed for it.
func (s *testbed) restartWorker(w *worker) error {
	next := s.nextFault
	if next == nil || next.Kind != KillAtPoint || next.Point == pipeline.BeforeReplay || s.armedWorker() != nil {
		return w.start(nil, 0)
	}
	return w.start(next, 1+s.random.IntN(maxPassings))
}

// armedWorker returns the worker that will kill itself at a point, or nil.
func (s *testbed) armedWorker() *worker {
	i := slices.IndexFunc(s.workers, func(w *worker) bool { return w.armedFor != nil })
	if i < 0 {
		return nil
	}
	return s.workers[i]
}

// killAtPoint waits until the armed worker has killed itself; without one it arms a worker.
func (s *testbed) killAtPoint(ctx context.Context, f Fault) error {
	w := s.armedWorker()
	if w == nil {
		w = s.workers[s.random.IntN(len(s.workers))]
		if err := s.armWorker(ctx, w, f); err != nil {
			return err
		}
	}
	s.logf("waiting for worker %d to kill itself %s", w.number, f.Point)
	select {
	case <-w.engine.Done():
		s.recordFault(f, "worker %d", w.number)
		w.armedFor = nil
	case <-time.After(5 * time.Second):
		s.killWorker(w, Fault{Kind: KillWorker}) // it had no reason to pass that point
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.restartWorker(w)
}

// armWorker kills a worker and starts it again armed for a fault. To make it replay the
// outbox, it is first killed between two sinks, which leaves an entry there.
func (s *testbed) armWorker(ctx context.Context, w *worker, f Fault) error {
	s.killWorker(w, Fault{Kind: KillWorker})
	passing := 1 + s.random.IntN(maxPassings)
	if f.Point == pipeline.BeforeReplay {
		passing = 1
		between := Fault{Kind: KillAtPoint, Point: pipeline.AfterCommit}
		if err := w.start(&between, 1+2*s.random.IntN(maxPassings/2)); err != nil {
			return err
		}
		if err := s.waitForKill(ctx, w, between); err != nil {
			return err
		}
	}
	return w.start(&f, passing)
}

func (s *testbed) waitForKill(ctx context.Context, w *worker, f Fault) error {
	select {
	case <-w.engine.Done():
		s.recordFault(f, "worker %d", w.number)
	case <-time.After(5 * time.Second):
		s.killWorker(w, Fault{Kind: KillWorker})
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// killDatabase kills a database, or a worker if the event store in it is the only sink.
func (s *testbed) killDatabase(ctx context.Context, w *worker, f Fault) error {
	if len(s.databases) == 0 {
		s.killWorker(w, Fault{Kind: KillWorker})
		return s.restartWorker(w)
	}
	d := s.databases[s.random.IntN(len(s.databases))]
	s.logf("%v: %s", f, d.kind)
	s.countFault("kill "+d.kind, 1)
	return s.restartServer(ctx, d, nil)
}

// restartServer kills a server, runs meanwhile and starts the server again, half of the
// time at once.
func (s *testbed) restartServer(ctx context.Context, server server, meanwhile func() error) error {
	if err := server.Kill(); err != nil {
		return err
	}
	if s.random.IntN(2) == 0 {
		if err := sleep(ctx, time.Duration(s.random.IntN(300))*time.Millisecond); err != nil {
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

// disturbNetwork disturbs the connections of a worker and then restores them.
func (s *testbed) disturbNetwork(ctx context.Context, w *worker, f Fault) error {
	all := w.proxies()
	p := all[s.random.IntN(len(all))]
	s.recordFault(f, "worker %d", w.number)
	switch f.Kind {
	case CutConnections:
		p.cutConnections()
	case CutInsidePacket:
		p.injectOnce(halfPacket)
	case DropReply:
		p.injectOnce(dropReply)
	case StallConnections:
		p.stall(false)
		defer p.resume()
		return sleep(ctx, time.Duration(s.random.ExpFloat64()*float64(800*time.Millisecond)))
	case DelayConnections:
		p.setDelay(time.Duration(1+s.random.IntN(40)) * time.Millisecond)
		defer p.setDelay(0)
		return sleep(ctx, 500*time.Millisecond)
	}
	return sleep(ctx, 100*time.Millisecond)
}
