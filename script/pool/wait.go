package pool

import (
	"context"
	"slices"
	"time"
)

func (g *Group) acquireSlow(ctx context.Context) (*Member, error) {
	if m := g.acquireFree(); m != nil {
		return m, nil
	}
	if n := len(*g.members.Load()); n > 0 && n >= g.pool.settings.Load().Core {
		for range spinTries / 10 {
			if m := g.acquireFree(); m != nil {
				return m, nil
			}
		}
	}
	w := g.pool.waiters.Get().(*waiter)
	defer g.pool.waiters.Put(w)
	return g.waitForAny(ctx, w)
}

// waitForAny waits until it can acquire or open a VM.
func (g *Group) waitForAny(ctx context.Context, w *waiter) (*Member, error) {
	var since time.Time
	defer func() { g.pool.recordWait(since) }()
	w.mayOpen = false
	for again := false; ; again = true {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return nil, ErrClosed
		}
		if g.mayOpenAtOnce() || (w.mayOpen || g.hasIdleCore(time.Now())) && g.hasRoom() {
			g.opening++
			if g.mayOpenAtOnce() {
				g.waiters.wakeFirst()
			}
			g.mu.Unlock()
			g.pool.recordWait(since)
			since = time.Time{}
			return g.openMember(ctx)
		}
		w.mayOpen = false
		g.waiters.push(w, again)
		g.mu.Unlock()
		g.pool.startMonitor()
		if m := g.acquireFree(); m != nil {
			g.cancelWait(w)
			return m, nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		select {
		case m := <-w.handoff:
			if m != nil {
				return m, nil
			}
			g.waiters.wokenPending.Store(false)
		case <-ctx.Done():
			g.cancelWait(w)
			return nil, ctx.Err()
		}
		if m := g.acquireFree(); m != nil {
			g.wakeNext()
			return m, nil
		}
	}
}

// recordWait counts a wait since a time; the zero time is no wait.
func (p *Pool) recordWait(since time.Time) {
	if !since.IsZero() {
		p.waits.Add(1)
		p.waitTime.Add(int64(time.Since(since)))
	}
}

// cancelWait ends the wait of a caller that has a VM or has given up. It passes on a VM
// or a wake-up that the caller received meanwhile.
func (g *Group) cancelWait(w *waiter) {
	g.mu.Lock()
	queued := g.waiters.remove(w)
	g.mu.Unlock()
	if queued {
		return
	}
	if m := <-w.handoff; m != nil {
		m.Release()
		return
	}
	g.waiters.wokenPending.Store(false)
	g.wakeNext()
}

// wakeNext wakes the next waiter when a VM is free or may be opened.
func (g *Group) wakeNext() {
	if !g.waiters.needsWake() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mayOpenAtOnce() || slices.ContainsFunc(*g.members.Load(), func(m *Member) bool { return m.state.Load() == stateFree }) {
		g.waiters.wakeFirst()
	}
}

// waitForMember waits for the VM in which the caller has suspended a call.
func (g *Group) waitForMember(m *Member) {
	w := g.pool.waiters.Get().(*waiter)
	defer g.pool.waiters.Put(w)
	since := time.Now()
	defer func() { g.pool.recordWait(since) }()
	for again := false; ; again = true {
		g.mu.Lock()
		m.waiters.push(w, again)
		g.mu.Unlock()
		if m.tryReacquire() {
			g.mu.Lock()
			queued := m.waiters.remove(w)
			g.mu.Unlock()
			if !queued {
				<-w.handoff
				m.waiters.wokenPending.Store(false)
			}
			return
		}
		if got := <-w.handoff; got != nil {
			return
		}
		m.waiters.wokenPending.Store(false)
		if m.tryReacquire() {
			return
		}
	}
}

// handOver passes a held VM to the first waiter: in turn to one that resumes a call in
// it, and to one that waits for any VM.
func (g *Group) handOver(m *Member, broken bool) bool {
	first, second := &m.waiters, &g.waiters
	if m.handedToResume && !broken {
		first, second = second, first
	}
	if first.length.Load() == 0 {
		first = second
	}
	if first.length.Load() == 0 || first == &g.waiters && broken {
		return false
	}
	now := time.Now()
	if now.Sub(m.handedOverAt) < handOverAfter {
		return false
	}
	g.mu.Lock()
	w := first.pop()
	g.mu.Unlock()
	if w == nil {
		return false
	}
	m.handedOverAt, m.handedToResume = now, first == &m.waiters
	w.handoff <- m
	return true
}

// wakeWaiters wakes waiters for a VM that has just become free, or closes a surplus VM.
func (g *Group) wakeWaiters(m *Member) {
	if g.checkOnRelease.Load() && m.suspended.Load() == 0 && m.tryReacquire() {
		if m.suspended.Load() == 0 && g.closeIfUnwanted(m) {
			return
		}
		m.markFree(m.VM.Broken())
	}
	g.mu.Lock()
	m.waiters.wakeFirst()
	g.waiters.wakeFirst()
	g.mu.Unlock()
}
