package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Group holds the VMs of one script, or of several equal ones.
type Group struct {
	pool  *Pool
	key   string
	maker Maker
	users int // guarded by the pool's mutex

	members        atomic.Pointer[[]*Member] // replaced as a whole, with mu held
	checkOnRelease atomic.Bool               // Release must check whether to close the VM
	_              [128]byte                 // the fields above are read by each call, those below written by some
	lastUsed       [256]hint
	_              [128]byte

	detached sync.WaitGroup // calls that go on without their VMs, see Extend
	_        [128]byte

	mu           sync.Mutex
	waiters      queue // callers that wait for any VM
	opening      int   // VMs that are being opened
	closing      int   // VMs that are being closed
	closed       bool
	memberMemory int // bytes of the VM that was opened last
	sampledAt    time.Time
	drained      chan struct{}
}

// A hint is the VM that a goroutine used last. Goroutines that run at the same time find
// different VMs by their hints, and each the same VM again, without writing to shared
// memory.
type hint struct{ member atomic.Pointer[Member] }

// lastUsedHint returns the hint of the calling goroutine, by the address of its stack.
// Goroutines that share a hint take their VMs from each other with each call, so there
// are many hints.
func (g *Group) lastUsedHint() *hint {
	const stackMin, multiplier = 2 << 10, 0x9e3779b97f4a7c15 // Knuth's
	var here byte
	address := uint64(uintptr(unsafe.Pointer(&here)) / stackMin)
	return &g.lastUsed[address*multiplier>>56]
}

func newGroup(p *Pool, key string, maker Maker) *Group {
	g := &Group{pool: p, key: key, maker: maker, drained: make(chan struct{})}
	g.members.Store(new([]*Member))
	return g
}

// Pool returns the pool of the group.
func (g *Group) Pool() *Pool { return g.pool }

// Acquire returns a VM, which the caller must give back with Release.
func (g *Group) Acquire(ctx context.Context) (*Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h := g.lastUsedHint()
	if m := h.member.Load(); m != nil && m.tryAcquire() {
		if m.uses%compactEvery == 0 {
			m = g.preferEarlier(h, m)
		}
		return m, nil
	}
	m, err := g.acquireSlow(ctx)
	if err == nil {
		h.member.Store(m)
	}
	return m, err
}

// compactEvery is the number of uses after which a caller prefers a free VM that precedes
// its own. So callers use as few VMs as possible, which is good for CPU caches, and the
// other VMs become idle and can be closed.
const compactEvery = 1 << 14

// preferEarlier returns a free VM that precedes m in the list, or m.
func (g *Group) preferEarlier(h *hint, m *Member) *Member {
	for _, one := range *g.members.Load() {
		if one == m {
			break
		}
		if one.state.Load() == stateFree && one.tryAcquire() {
			h.member.Store(one)
			m.Release()
			return one
		}
	}
	return m
}

// acquireFree acquires the first free VM, or returns nil.
func (g *Group) acquireFree() *Member {
	for _, m := range *g.members.Load() {
		if m.state.Load() == stateFree && m.tryAcquire() {
			return m
		}
	}
	return nil
}

// closeIfUnwanted closes a VM that the caller holds, if it is broken or surplus.
func (g *Group) closeIfUnwanted(m *Member) bool {
	broken := m.VM.Broken()
	g.mu.Lock()
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	unwanted := s.Idle < 0 && n > s.Core && g.waiters.length.Load() == 0
	if !broken && !g.closed && n <= s.Max && !unwanted {
		g.mu.Unlock()
		return false
	}
	g.removeMember(m)
	g.mu.Unlock()
	g.closeMember(m, broken)
	return true
}

// closeMember closes a VM that removeMember has removed.
func (g *Group) closeMember(m *Member, broken bool) {
	m.VM.Close()
	if broken {
		g.pool.discarded.Add(1)
	} else {
		g.pool.released.Add(1)
	}
	g.mu.Lock()
	g.closing--
	g.waiters.wakeFirst() // it may open a VM now
	g.signalDrained()
	g.mu.Unlock()
}

// addMember and removeMember change the list of VMs, with the mutex held.
func (g *Group) addMember(m *Member) {
	all := append(slices.Clip(slices.Clone(*g.members.Load())), m)
	g.members.Store(&all)
	g.updateCheckOnRelease()
}

func (g *Group) removeMember(m *Member) {
	m.state.Store(stateClosed)
	g.pool.memory.Add(-int64(m.memory))
	all := slices.Clone(*g.members.Load())
	all = slices.DeleteFunc(all, func(one *Member) bool { return one == m })
	g.members.Store(&all)
	g.closing++
	g.updateCheckOnRelease()
}

func (g *Group) updateCheckOnRelease() {
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	g.checkOnRelease.Store(g.closed || n > s.Max || s.Idle < 0 && n > s.Core)
}

// countSlots counts the VMs, including those that are being opened or closed.
func (g *Group) countSlots() int { return len(*g.members.Load()) + g.closing + g.opening }

// hasRoom reports whether the settings allow one more VM.
func (g *Group) hasRoom() bool {
	n := g.countSlots()
	return n == 0 || n < g.pool.settings.Load().Max && g.pool.hasMemory(g.memberMemory)
}

// mayOpenAtOnce reports whether a caller may open a VM without waiting first.
func (g *Group) mayOpenAtOnce() bool {
	s, n := g.pool.settings.Load(), g.countSlots()
	return g.hasRoom() && (n == 0 || n < s.Core || s.Eager)
}

// openMember opens a VM, which the caller has counted in g.opening.
func (g *Group) openMember(ctx context.Context) (*Member, error) {
	vm, err := g.maker.Open(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opening--
	if err != nil {
		g.waiters.wakeFirst()
		g.signalDrained()
		return nil, err
	}
	m := &Member{VM: vm, group: g, memory: vm.Memory()}
	m.state.Store(stateHeld)
	g.memberMemory = m.memory
	g.pool.memory.Add(int64(m.memory))
	g.pool.made.Add(1)
	g.addMember(m)
	if len(*g.members.Load()) > g.pool.settings.Load().Core {
		g.pool.startMonitor()
	}
	return m, nil
}

// applySettings applies new settings.
func (g *Group) applySettings() {
	g.mu.Lock()
	g.updateCheckOnRelease()
	g.waiters.wakeFirst()
	g.mu.Unlock()
	g.closeUnwanted()
}

// closeUnwanted closes free VMs that are surplus.
func (g *Group) closeUnwanted() {
	for _, m := range *g.members.Load() {
		if g.checkOnRelease.Load() && m.suspended.Load() == 0 && m.tryReacquire() {
			m.Release()
		}
	}
}

// Extend makes Leave wait for a call that goes on after it has released its VM, until
// Done. Call it before Release.
func (g *Group) Extend() { g.detached.Add(1) }

// Done ends a call that Extend was called for.
func (g *Group) Done() { g.detached.Done() }

// Leave ends a Join. The last Leave closes the VMs. It waits for those in use and for
// calls that Extend was called for.
func (g *Group) Leave() {
	p := g.pool
	p.mu.Lock()
	g.users--
	last := g.users == 0
	if last {
		delete(p.groups, g.key)
	}
	p.mu.Unlock()
	if !last {
		return
	}
	g.mu.Lock()
	g.closed = true
	g.updateCheckOnRelease()
	for w := g.waiters.pop(); w != nil; w = g.waiters.pop() {
		w.handoff <- nil
	}
	g.signalDrained()
	g.mu.Unlock()
	g.closeUnwanted()
	<-g.drained
	g.detached.Wait()
	g.maker.Close()
	p.mu.Lock()
	delete(p.all, g)
	p.mu.Unlock()
	p.wakeMonitor()
}

// signalDrained closes g.drained when the group is closed and its last VM is, too.
func (g *Group) signalDrained() {
	if g.closed && g.countSlots() == 0 {
		close(g.drained)
	}
}

// addStats adds the group's gauges.
func (g *Group) addStats(s *Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Scripts++
	s.Waiting += int(g.waiters.length.Load())
	for _, m := range *g.members.Load() {
		if m.state.Load() == stateHeld {
			s.InUse++
		} else {
			s.Idle++
		}
		s.Suspended += int(m.suspended.Load())
		s.Waiting += int(m.waiters.length.Load())
	}
}
