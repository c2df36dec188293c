package pool

import (
	"context"
	"slices"
	"time"
)

func (g *Group) search(ctx context.Context) (*Member, error) {
	if m := g.scan(); m != nil {
		return m, nil
	}
	if n := len(*g.members.Load()); n > 0 && n >= g.pool.settings.Load().Core {
		for range spins / 10 {
			if m := g.scan(); m != nil {
				return m, nil
			}
		}
	}
	w := g.pool.waiters.Get().(*waiter)
	defer g.pool.waiters.Put(w)
	return g.wait(ctx, w)
}

// wait goes on until there is a VM, or may be one more.
func (g *Group) wait(ctx context.Context, w *waiter) (*Member, error) {
	var since time.Time
	defer func() { g.pool.waitedSince(since) }()
	w.opens = false
	for again := false; ; again = true {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			return nil, ErrClosed
		}
		if g.mayOpen() || (w.opens || g.lacks(time.Now())) && g.below() {
			g.opening++
			if g.mayOpen() {
				g.turns.wake()
			}
			g.mu.Unlock()
			g.pool.waitedSince(since)
			since = time.Time{}
			return g.open(ctx)
		}
		w.opens = false
		g.turns.push(w, again)
		g.mu.Unlock()
		g.pool.tend()
		if m := g.scan(); m != nil {
			g.leave(w)
			return m, nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		select {
		case m := <-w.turn:
			if m != nil {
				return m, nil
			}
			g.turns.woken.Store(false)
		case <-ctx.Done():
			g.leave(w)
			return nil, ctx.Err()
		}
		if m := g.scan(); m != nil {
			g.passOn()
			return m, nil
		}
	}
}

// waitedSince counts a wait, if there was one.
func (p *Pool) waitedSince(since time.Time) {
	if !since.IsZero() {
		p.waits.Add(1)
		p.waited.Add(int64(time.Since(since)))
	}
}

// leave ends the wait of somebody who has what he wanted, or does not want it any
// more, and passes on what he was given meanwhile.
func (g *Group) leave(w *waiter) {
	g.mu.Lock()
	in := g.turns.remove(w)
	g.mu.Unlock()
	if in {
		return
	}
	if m := <-w.turn; m != nil {
		m.Release()
		return
	}
	g.turns.woken.Store(false)
	g.passOn()
}

// passOn wakes the next who waits, when there is something to be had.
func (g *Group) passOn() {
	if !g.turns.calls() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mayOpen() || slices.ContainsFunc(*g.members.Load(), func(m *Member) bool { return m.state.Load() == free }) {
		g.turns.wake()
	}
}

// waitFor waits for a VM that the caller has suspended a call in.
func (g *Group) waitFor(m *Member) {
	w := g.pool.waiters.Get().(*waiter)
	defer g.pool.waiters.Put(w)
	since := time.Now()
	defer func() { g.pool.waitedSince(since) }()
	for again := false; ; again = true {
		g.mu.Lock()
		m.turns.push(w, again)
		g.mu.Unlock()
		if m.retake() {
			g.mu.Lock()
			in := m.turns.remove(w)
			g.mu.Unlock()
			if !in {
				<-w.turn
				m.turns.woken.Store(false)
			}
			return
		}
		if got := <-w.turn; got != nil {
			return
		}
		m.turns.woken.Store(false)
		if m.retake() {
			return
		}
	}
}

// handOver gives a VM, without letting go of it, to the first who waits: for it, or
// for any, by turns.
func (g *Group) handOver(m *Member, broken bool) bool {
	first, second := &m.turns, &g.turns
	if m.inward && !broken {
		first, second = second, first
	}
	if first.length.Load() == 0 {
		first = second
	}
	if first.length.Load() == 0 || first == &g.turns && broken {
		return false
	}
	now := time.Now()
	if now.Sub(m.handed) < turnAfter {
		return false
	}
	g.mu.Lock()
	w := first.pop()
	g.mu.Unlock()
	if w == nil {
		return false
	}
	m.handed, m.inward = now, first == &m.turns
	w.turn <- m
	return true
}

// freed wakes who waits for a VM that has just become free, or frees it.
func (g *Group) freed(m *Member) {
	if g.special.Load() && m.suspended.Load() == 0 && m.retake() {
		if m.suspended.Load() == 0 && g.dismisses(m) {
			return
		}
		m.rest(m.VM.Broken())
	}
	g.mu.Lock()
	m.turns.wake()
	g.turns.wake()
	g.mu.Unlock()
}
