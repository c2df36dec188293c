package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Group is the VMs of one script, or of several that are equal.
type Group struct {
	pool  *Pool
	key   string
	maker Maker
	users int // guarded by the pool's mutex

	members atomic.Pointer[[]*Member] // replaced whole, below mu
	special atomic.Bool               // who gives a VM back must look whether it goes
	_       [128]byte                 // those are read with each call, the next written now and then
	hints   [256]hint
	_       [128]byte

	extended sync.WaitGroup // what calls do without their VMs
	_        [128]byte

	mu      sync.Mutex
	turns   queue // who waits for any VM
	opening int   // VMs that are being made,
	closing int   // and freed
	closed  bool
	size    int // bytes that a VM took at last
	looked  time.Time
	empty   chan struct{}
}

// A hint is the VM that some goroutine used last. Those that run at the same time
// come to different VMs by it, and each to the same one again, without writing to
// memory that they share.
type hint struct{ member atomic.Pointer[Member] }

// hint picks the goroutine's one, by the place of its stack. Two that run at the same
// time and have the same one take their VMs from each other with each call, so that
// there are many.
func (g *Group) hint() *hint {
	const least, scatter = 2 << 10, 0x9e3779b97f4a7c15 // a stack; Knuth's multiplier
	var here byte
	place := uint64(uintptr(unsafe.Pointer(&here)) / least)
	return &g.hints[place*scatter>>56]
}

func newGroup(p *Pool, key string, maker Maker) *Group {
	g := &Group{pool: p, key: key, maker: maker, empty: make(chan struct{})}
	g.members.Store(new([]*Member))
	return g
}

// Pool is the one that the group is in.
func (g *Group) Pool() *Pool { return g.pool }

// Maker is the one that makes its VMs.
func (g *Group) Maker() Maker { return g.maker }

// Acquire returns a VM, which the caller must give back by Release.
func (g *Group) Acquire(ctx context.Context) (*Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h := g.hint()
	if m := h.member.Load(); m != nil && m.take() {
		if m.uses%homeEvery == 0 {
			m = g.home(h, m)
		}
		return m, nil
	}
	m, err := g.search(ctx)
	if err == nil {
		h.member.Store(m)
	}
	return m, err
}

// homeEvery is after how many uses of a VM it is left for one before it, if one is
// free. So no more VMs are in use than have to be, which the caches thank for, and
// the others rest and can go.
const homeEvery = 1 << 14

// home is a VM before m, or m itself.
func (g *Group) home(h *hint, m *Member) *Member {
	for _, one := range *g.members.Load() {
		if one == m {
			break
		}
		if one.state.Load() == free && one.take() {
			h.member.Store(one)
			m.Release()
			return one
		}
	}
	return m
}

// scan takes the first VM that is free.
func (g *Group) scan() *Member {
	for _, m := range *g.members.Load() {
		if m.state.Load() == free && m.take() {
			return m
		}
	}
	return nil
}

// dismisses closes a VM that its caller holds, if it has to go.
func (g *Group) dismisses(m *Member) bool {
	broken := m.VM.Broken()
	g.mu.Lock()
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	unwanted := s.Idle < 0 && n > s.Core && g.turns.length.Load() == 0
	if !broken && !g.closed && n <= s.Max && !unwanted {
		g.mu.Unlock()
		return false
	}
	g.unlist(m)
	g.mu.Unlock()
	g.discard(m, broken)
	return true
}

// discard frees a VM that is no longer listed.
func (g *Group) discard(m *Member, broken bool) {
	m.VM.Close()
	if broken {
		g.pool.broken.Add(1)
	} else {
		g.pool.released.Add(1)
	}
	g.mu.Lock()
	g.closing--
	g.turns.wake() // there may be one more
	g.left()
	g.mu.Unlock()
}

// list and unlist change the VMs there are, below the mutex.
func (g *Group) list(m *Member) {
	all := append(slices.Clip(slices.Clone(*g.members.Load())), m)
	g.members.Store(&all)
	g.mark()
}

func (g *Group) unlist(m *Member) {
	m.state.Store(gone)
	g.pool.memory.Add(-int64(m.memory))
	all := slices.Clone(*g.members.Load())
	all = slices.DeleteFunc(all, func(one *Member) bool { return one == m })
	g.members.Store(&all)
	g.closing++
	g.mark()
}

// mark notes whether VMs must be looked at when they are given back.
func (g *Group) mark() {
	s, n := g.pool.settings.Load(), len(*g.members.Load())
	g.special.Store(g.closed || n > s.Max || s.Idle < 0 && n > s.Core)
}

// places counts the VMs there are, also those that begin or end.
func (g *Group) places() int { return len(*g.members.Load()) + g.closing + g.opening }

// below tells whether there may be one more VM, whoever wants it.
func (g *Group) below() bool {
	n := g.places()
	return n == 0 || n < g.pool.settings.Load().Max && g.pool.room(g.size)
}

// mayOpen tells whether one may be made at once.
func (g *Group) mayOpen() bool {
	s, n := g.pool.settings.Load(), g.places()
	return g.below() && (n == 0 || n < s.Core || s.Eager)
}

// open makes a VM, for which there is leave.
func (g *Group) open(ctx context.Context) (*Member, error) {
	vm, err := g.maker.Open(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opening--
	if err != nil {
		g.turns.wake()
		g.left()
		return nil, err
	}
	m := &Member{VM: vm, group: g, memory: vm.Memory()}
	m.state.Store(held)
	g.size = m.memory
	g.pool.memory.Add(int64(m.memory))
	g.pool.made.Add(1)
	g.list(m)
	if len(*g.members.Load()) > g.pool.settings.Load().Core {
		g.pool.tend()
	}
	return m, nil
}

// resized applies new settings.
func (g *Group) resized() {
	g.mu.Lock()
	g.mark()
	g.turns.wake()
	g.mu.Unlock()
	g.clear()
}

// clear closes what is free and has to go.
func (g *Group) clear() {
	for _, m := range *g.members.Load() {
		if g.special.Load() && m.suspended.Load() == 0 && m.retake() {
			m.Release()
		}
	}
}

// Extend says, before Release, that the call goes on without a VM, until Done.
func (g *Group) Extend() { g.extended.Add(1) }

// Done ends what Extend began.
func (g *Group) Done() { g.extended.Done() }

// Leave ends a Join. The last one frees the VMs, and waits for those in use and for
// calls that go on without.
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
	g.mark()
	for w := g.turns.pop(); w != nil; w = g.turns.pop() {
		w.turn <- nil
	}
	g.left()
	g.mu.Unlock()
	g.clear()
	<-g.empty
	g.extended.Wait()
	g.maker.Close()
	p.mu.Lock()
	delete(p.all, g)
	p.mu.Unlock()
	p.stir()
}

// left sees whether a closed group has lost its last VM.
func (g *Group) left() {
	if g.closed && g.places() == 0 {
		close(g.empty)
	}
}

// count adds the group's gauges.
func (g *Group) count(s *Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Scripts++
	s.Waiting += int(g.turns.length.Load())
	for _, m := range *g.members.Load() {
		if m.state.Load() == held {
			s.InUse++
		} else {
			s.Idle++
		}
		s.Suspended += int(m.suspended.Load())
		s.Waiting += int(m.turns.length.Load())
	}
}
