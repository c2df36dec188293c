package pool

import (
	"runtime"
	"slices"
	"time"
)

const (
	shortTick = time.Millisecond // while callers wait
	longTick  = time.Second      // at most, while VMs beyond the core may become idle
)

// A progressSample is the state of a VM when the monitor last looked.
type progressSample struct {
	runs  uint32
	stuck bool      // in use, but waiting
	since time.Time // when it was last in use or computing
}

// startMonitor makes sure that the monitor runs: a goroutine that lets waiting callers
// open VMs while CPU cores are idle, and closes VMs that have been idle for long.
func (p *Pool) startMonitor() {
	if p.monitored.CompareAndSwap(false, true) {
		go p.runMonitor()
		return
	}
	p.wakeMonitor()
}

// wakeMonitor ends a long sleep of the monitor.
func (p *Pool) wakeMonitor() {
	if p.monitorSleeps.Load() {
		select {
		case p.monitorWake <- struct{}{}:
		default:
		}
	}
}

// runMonitor inspects the groups until no caller waits and no VM is beyond the core.
func (p *Pool) runMonitor() {
	timer := time.NewTimer(shortTick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.monitorWake:
		}
		p.monitorSleeps.Store(false)
		next := p.inspect(time.Now())
		if next == 0 {
			p.monitored.Store(false)
			if next = p.inspect(time.Now()); next == 0 || !p.monitored.CompareAndSwap(false, true) {
				return
			}
		}
		p.monitorSleeps.Store(next > shortTick)
		if next > shortTick && p.hasWaiters() { // since the inspection
			next = shortTick
		}
		timer.Reset(next)
	}
}

func (p *Pool) hasWaiters() bool {
	return slices.ContainsFunc(p.listGroups(), func(g *Group) bool { return g.waiters.length.Load() > 0 })
}

// inspect inspects all groups. It returns the time until the next inspection, or 0 for
// none.
func (p *Pool) inspect(now time.Time) (next time.Duration) {
	groups, tick := p.listGroups(), longTick
	if idle := p.settings.Load().Idle; idle > 0 {
		tick = max(min(idle/4, longTick), shortTick)
	}
	short := !p.hasMemory(0) // of memory
	for _, g := range groups {
		short = short || g.waitsForMemory()
	}
	for _, g := range groups {
		waiting, surplus := g.inspect(now, short)
		switch {
		case waiting:
			next = shortTick
		case surplus && next == 0:
			next = tick
		}
	}
	return next
}

// waitsForMemory reports whether callers wait because of the bound on memory.
func (g *Group) waitsForMemory() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiters.length.Load() > 0 && !g.pool.hasMemory(g.memberMemory)
}

// inspect lets waiting callers open VMs, and closes idle ones.
func (g *Group) inspect(now time.Time, short bool) (waiting, surplus bool) {
	g.mu.Lock()
	var idle []*Member
	active := g.countActive(now)
	for _, m := range *g.members.Load() {
		if g.takeForClosing(m, now, short) {
			idle = append(idle, m)
			g.removeMember(m)
		}
	}
	if waiting = g.waiters.length.Load() > 0; waiting {
		g.letWaitersOpen(runtime.GOMAXPROCS(0) - active)
	}
	surplus = len(*g.members.Load()) > g.pool.settings.Load().Core
	g.mu.Unlock()
	for _, m := range idle {
		g.closeMember(m, false)
	}
	return waiting, surplus
}

// hasIdleCore tells a caller that is about to sleep whether to open a VM instead: on a
// busy machine the monitor may be late.
func (g *Group) hasIdleCore(now time.Time) bool {
	if now.Sub(g.sampledAt) < shortTick {
		return false
	}
	return g.countActive(now) < runtime.GOMAXPROCS(0)
}

// countActive counts the VMs that are in use and not stuck.
func (g *Group) countActive(now time.Time) int {
	g.sampledAt = now
	active := g.opening
	for _, m := range *g.members.Load() {
		if m.sampleProgress(now) {
			active++
		}
	}
	return active
}

// sampleProgress reports whether the VM is in use and not stuck: it computes, or has done
// so since the last sample.
func (m *Member) sampleProgress(now time.Time) (active bool) {
	runs, computes := m.VM.Progress()
	inUse, moved := m.state.Load() == stateHeld, computes || runs != m.sample.runs || m.sample.since.IsZero()
	if inUse || moved {
		m.sample.since = now
	}
	m.sample.runs, m.sample.stuck = runs, inUse && !moved
	return inUse && !m.sample.stuck
}

// takeForClosing acquires a VM beyond the core that has been idle for long enough. When
// memory is short, any idle VM will do.
func (g *Group) takeForClosing(m *Member, now time.Time, short bool) bool {
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	crowded := n > s.Core && (short || now.Sub(m.sample.since) >= s.Idle)
	crowded = crowded || n > 1 && !g.pool.hasMemory(0)
	if !crowded || m.suspended.Load() > 0 || !m.tryAcquire() {
		return false
	}
	if m.suspended.Load() > 0 { // since the check
		m.state.Store(stateFree)
		m.waiters.wakeFirst()
		g.waiters.wakeFirst()
		return false
	}
	return true
}

// letWaitersOpen lets one waiter per idle core open a VM for itself, and wakes one more
// that may find a free VM.
func (g *Group) letWaitersOpen(idleCores int) {
	slots := g.pool.settings.Load().Max - g.countSlots()
	for range min(idleCores, slots) {
		if g.waiters.first == nil || !g.pool.hasMemory(g.memberMemory) {
			break
		}
		w := g.waiters.pop()
		w.mayOpen = true
		w.handoff <- nil
	}
	g.waiters.wakeFirst()
}
