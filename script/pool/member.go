package pool

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	stateFree     = iota
	stateHeld     // by a caller
	stateReserved // broken, and kept for the calls that are suspended in it
	stateClosed
)

// A Member is a VM that a caller holds.
type Member struct {
	VM    VM
	group *Group

	state          atomic.Uint32
	suspended      atomic.Int32   // suspended calls; only the holder changes it
	waiters        queue          // calls that resume
	uses           uint32         // only for the holder, as the next three fields
	handedOverAt   time.Time      // to a waiter, last
	handedToResume bool           // that waiter resumed a call
	memory         int            // that the pool counts for the VM
	sample         progressSample // only for the monitor
	_              [128]byte      // keeps the next member out of the cache line
}

func (m *Member) tryAcquire() bool { return m.state.CompareAndSwap(stateFree, stateHeld) }

// tryReacquire acquires the VM for a suspended call.
func (m *Member) tryReacquire() bool {
	return m.tryAcquire() || m.state.CompareAndSwap(stateReserved, stateHeld)
}

// A VM is handed to a waiter once in handOverEvery uses, and at most once in
// handOverAfter. The goroutine that hands it over soon has to sleep itself, so when many
// wait, each switch leads to the next, and a switch may cost as much as dozens of short
// calls.
const (
	handOverEvery = 16
	handOverAfter = time.Millisecond
)

// Release gives the VM back.
func (m *Member) Release() {
	g := m.group
	m.uses++
	broken := m.VM.Broken()
	if (broken || g.checkOnRelease.Load()) && m.suspended.Load() == 0 && g.closeIfUnwanted(m) {
		return
	}
	m.updateMemory()
	if m.uses%handOverEvery == 0 && g.handOver(m, broken) {
		return
	}
	m.markFree(broken)
	if m.waiters.needsWake() || g.waiters.needsWake() || g.checkOnRelease.Load() {
		g.wakeWaiters(m)
	}
}

// markFree ends the hold. A broken VM stays only for the calls that are suspended in it.
func (m *Member) markFree(broken bool) {
	if broken {
		m.state.Store(stateReserved)
	} else {
		m.state.Store(stateFree)
	}
}

// Suspend releases the VM during a call that will go on in it: the VM stays until Resume.
func (m *Member) Suspend() {
	m.suspended.Add(1)
	m.Release()
}

// Resume acquires the VM again after Suspend. It waits for other callers.
func (m *Member) Resume() {
	if !m.tryReacquire() && !m.spinReacquire() {
		m.group.waitForMember(m)
	}
	m.suspended.Add(-1)
}

// spinTries is how often Resume looks at a VM in use before it sleeps. A short call ends
// within it.
const spinTries = 100

func (m *Member) spinReacquire() bool {
	if runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	for range spinTries {
		if s := m.state.Load(); s != stateHeld && m.tryReacquire() {
			return true
		}
	}
	return false
}

// memoryStep is the smallest change of a VM's memory that the pool counts.
const memoryStep = 64 << 10

// updateMemory counts the VM's memory.
func (m *Member) updateMemory() {
	now := m.VM.Memory()
	if change := now - m.memory; change > memoryStep || change < -memoryStep {
		m.memory = now
		m.group.pool.memory.Add(int64(change))
		if !m.group.pool.hasMemory(0) {
			m.group.pool.startMonitor()
		}
	}
}
