package pool

import (
	"runtime"
	"slices"
	"time"
)

const (
	shortTick = time.Millisecond // while callers wait
	longTick  = time.Second      // while VMs may have to go, at most
)

// A sighting is what the tender last saw of a VM.
type sighting struct {
	runs  uint32
	stuck bool      // its holder lets it wait
	since time.Time // it has done nothing
}

// tend sees to it that there is a tender: somebody who looks from time to time
// whether callers wait while nothing is computed, and whether VMs rest for long.
func (p *Pool) tend() {
	if p.tended.CompareAndSwap(false, true) {
		go p.look()
		return
	}
	p.stir()
}

// stir ends a long sleep of the tender.
func (p *Pool) stir() {
	if p.rests.Load() {
		select {
		case p.poke <- struct{}{}:
		default:
		}
	}
}

// look is the tender. It ends when there is nothing to look at.
func (p *Pool) look() {
	timer := time.NewTimer(shortTick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.poke:
		}
		p.rests.Store(false)
		next := p.round(time.Now())
		if next == 0 {
			p.tended.Store(false)
			if next = p.round(time.Now()); next == 0 || !p.tended.CompareAndSwap(false, true) {
				return
			}
		}
		p.rests.Store(next > shortTick)
		if next > shortTick && p.callersWait() { // since we looked
			next = shortTick
		}
		timer.Reset(next)
	}
}

func (p *Pool) callersWait() bool {
	return slices.ContainsFunc(p.list(), func(g *Group) bool { return g.turns.length.Load() > 0 })
}

// round looks at all groups once. It returns after what time to look again, or 0.
func (p *Pool) round(now time.Time) (next time.Duration) {
	groups, tick := p.list(), longTick
	if idle := p.settings.Load().Idle; idle > 0 {
		tick = max(min(idle/4, longTick), shortTick)
	}
	short := !p.room(0) // of memory
	for _, g := range groups {
		short = short || g.cramped()
	}
	for _, g := range groups {
		waiting, surplus := g.round(now, short)
		switch {
		case waiting:
			next = shortTick
		case surplus && next == 0:
			next = tick
		}
	}
	return next
}

// cramped tells whether callers wait for want of memory.
func (g *Group) cramped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turns.length.Load() > 0 && !g.pool.room(g.size)
}

// round looks at the VMs of a group: it lets callers make more, and frees what rests.
func (g *Group) round(now time.Time, short bool) (waiting, surplus bool) {
	g.mu.Lock()
	var rested []*Member
	active := g.active(now)
	for _, m := range *g.members.Load() {
		if g.goes(m, now, short) {
			rested = append(rested, m)
			g.unlist(m)
		}
	}
	if waiting = g.turns.length.Load() > 0; waiting {
		g.encourage(runtime.GOMAXPROCS(0) - active)
	}
	surplus = len(*g.members.Load()) > g.pool.settings.Load().Core
	g.mu.Unlock()
	for _, m := range rested {
		g.discard(m, false)
	}
	return waiting, surplus
}

// lacks tells a caller who is about to sleep whether he should make a VM instead. On
// a machine that is busy the tender may come late.
func (g *Group) lacks(now time.Time) bool {
	if now.Sub(g.looked) < shortTick {
		return false
	}
	return g.active(now) < runtime.GOMAXPROCS(0)
}

// active counts the VMs in use that are not stuck.
func (g *Group) active(now time.Time) int {
	g.looked = now
	active := g.opening
	for _, m := range *g.members.Load() {
		if m.glance(now) {
			active++
		}
	}
	return active
}

// glance tells whether the VM is in use and not stuck: it computes, or has done so
// since the last glance.
func (m *Member) glance(now time.Time) (active bool) {
	runs, computes := m.VM.Progress()
	inUse, moved := m.state.Load() == held, computes || runs != m.seen.runs || m.seen.since.IsZero()
	if inUse || moved {
		m.seen.since = now
	}
	m.seen.runs, m.seen.stuck = runs, inUse && !moved
	return inUse && !m.seen.stuck
}

// goes takes a VM that has rested for long enough and is not of the core. When
// memory is short, each is too many that rests.
func (g *Group) goes(m *Member, now time.Time, short bool) bool {
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	crowded := n > s.Core && (short || now.Sub(m.seen.since) >= s.Idle)
	crowded = crowded || n > 1 && !g.pool.room(0)
	if !crowded || m.suspended.Load() > 0 || !m.take() {
		return false
	}
	if m.suspended.Load() > 0 { // since we looked
		m.state.Store(free)
		m.turns.wake()
		g.turns.wake()
		return false
	}
	return true
}

// encourage lets callers make a VM for themselves, so many of them as cores have
// nothing to compute, or wakes one who can have what there is.
func (g *Group) encourage(cores int) {
	places := g.pool.settings.Load().Max - g.places()
	for range min(cores, places) {
		if g.turns.first == nil || !g.pool.room(g.size) {
			break
		}
		w := g.turns.pop()
		w.opens = true
		w.turn <- nil
	}
	g.turns.wake()
}
