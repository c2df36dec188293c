package pool

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	free     = iota // for anybody
	held            // by a caller
	reserved        // free, but only for calls that wait inside
	gone            // closed
)

// A Member is a VM that a caller holds.
type Member struct {
	VM    VM
	group *Group

	state     atomic.Uint32
	suspended atomic.Int32 // calls that wait inside; changed by the holder
	turns     queue        // of those calls
	uses      uint32       // changed by the holder
	handed    time.Time    // over, last; the holder's
	inward    bool         // to a call that waits inside; the holder's
	memory    int          // that the pool counts for it; the holder's
	seen      sighting     // the tender's
	_         [128]byte    // what lies behind is another processor's
}

func (m *Member) take() bool { return m.state.CompareAndSwap(free, held) }

// retake takes it for a call that waits inside.
func (m *Member) retake() bool {
	return m.take() || m.state.CompareAndSwap(reserved, held)
}

// turnEvery is how many uses of a VM others may take before it may be handed to one
// who waits, and turnAfter how long. Who hands it over will soon have to sleep
// himself, so if many wait, one switch leads to the next: it may cost as much as dozens
// of short calls.
const (
	turnEvery = 16
	turnAfter = time.Millisecond
)

// Release gives the VM back.
func (m *Member) Release() {
	g := m.group
	m.uses++
	broken := m.VM.Broken()
	if (broken || g.special.Load()) && m.suspended.Load() == 0 && g.dismisses(m) {
		return
	}
	m.weigh()
	if m.uses%turnEvery == 0 && g.handOver(m, broken) {
		return
	}
	m.rest(broken)
	if m.turns.calls() || g.turns.calls() || g.special.Load() {
		g.freed(m)
	}
}

// rest ends the hold. A broken VM is there only for the calls that wait in it.
func (m *Member) rest(broken bool) {
	if broken {
		m.state.Store(reserved)
	} else {
		m.state.Store(free)
	}
}

// Suspend is Release by a call that will go on in this VM: it stays until Resume.
func (m *Member) Suspend() {
	m.suspended.Add(1)
	m.Release()
}

// Resume takes the VM again after Suspend. It waits for those who use it.
func (m *Member) Resume() {
	if !m.retake() && !m.spin() {
		m.group.waitFor(m)
	}
	m.suspended.Add(-1)
}

// spins is for how many glances a VM in use may become free before it is worth
// sleeping. A short call is over by then.
const spins = 100

func (m *Member) spin() bool {
	if runtime.GOMAXPROCS(0) == 1 {
		return false
	}
	for range spins {
		if s := m.state.Load(); s != held && m.retake() {
			return true
		}
	}
	return false
}

// weighStep is how much the memory of a VM may change unnoticed.
const weighStep = 64 << 10

// weigh keeps account of the VM's memory.
func (m *Member) weigh() {
	now := m.VM.Memory()
	if change := now - m.memory; change > weighStep || change < -weighStep {
		m.memory = now
		m.group.pool.memory.Add(int64(change))
		if !m.group.pool.room(0) {
			m.group.pool.tend()
		}
	}
}
