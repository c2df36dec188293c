// Package pool keeps virtual machines for scripts. One Pool serves any number of
// scripts; equal ones, by the key they give, share their VMs.
//
// A caller gets a VM that is free, or has one made where Settings allow, or waits.
// Nobody holds a lock while a VM is used. Callers that wait do so in their order,
// but a VM that becomes free may be taken by one who is just running: waking
// somebody for each call costs several times a short call. Every so many calls the
// VM is handed to the one who waits longest, so that nobody waits for ever.
//
// Everything is safe for concurrent use.
package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A VM is what a pool keeps.
type VM interface {
	// Close frees it. Nobody uses it then.
	Close()
	// Broken tells whether it can take no more calls. It is asked by its holder.
	Broken() bool
	// Memory is how many bytes it takes. It is asked by its holder.
	Memory() int
	// Progress says how many times it has begun to compute, and whether it does now:
	// not when it waits, for a processor either. It is asked at any time until Close,
	// by one at a time.
	Progress() (runs uint32, computes bool)
}

// A Maker makes the VMs of one script.
type Maker interface {
	Open(ctx context.Context) (VM, error)
	// Close frees what the VMs shared, after the last of them.
	Close()
}

// ErrClosed is the error of those who want a VM of a script that was unloaded.
var ErrClosed = errors.New("the script is unloaded")

// A Pool keeps the VMs of scripts.
type Pool struct {
	settings atomic.Pointer[Settings]
	memory   atomic.Int64 // bytes of all VMs
	made     atomic.Uint64
	released atomic.Uint64
	broken   atomic.Uint64
	waits    atomic.Uint64
	waited   atomic.Int64

	waiters sync.Pool // *waiter

	mu     sync.Mutex
	groups map[string]*Group
	all    map[*Group]struct{} // with those that end

	tended atomic.Bool // there is a tender
	rests  atomic.Bool // it sleeps for long
	poke   chan struct{}
}

// New makes a pool. It needs no closing: what it keeps belongs to its groups.
func New(s Settings) *Pool {
	p := &Pool{groups: make(map[string]*Group), all: make(map[*Group]struct{}), poke: make(chan struct{}, 1)}
	p.waiters.New = func() any { return &waiter{turn: make(chan *Member, 1)} }
	s = s.withDefaults()
	p.settings.Store(&s)
	return p
}

// Resize changes the settings. VMs that are too many go as they become free.
func (p *Pool) Resize(s Settings) {
	s = s.withDefaults()
	p.settings.Store(&s)
	for _, g := range p.list() {
		g.resized()
	}
	p.tend()
}

// list returns the groups there are.
func (p *Pool) list() []*Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	groups := make([]*Group, 0, len(p.all))
	for g := range p.all {
		groups = append(groups, g)
	}
	return groups
}

// Join returns the VMs for a key, which stands for the code and for all that makes
// VMs differ. If nobody has them, maker says how they are made. Each Join needs a
// Leave.
func (p *Pool) Join(key string, maker func() Maker) *Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[key]
	if g == nil {
		g = newGroup(p, key, maker())
		p.groups[key], p.all[g] = g, struct{}{}
	}
	g.users++
	return g
}

// room tells whether so many bytes more are within the bound.
func (p *Pool) room(bytes int) bool {
	return p.memory.Load()+int64(bytes) <= int64(p.settings.Load().Memory)
}

// Stats are the gauges and counters of a pool, or of one script in it.
type Stats struct {
	Scripts   int // gauges: scripts that are loaded,
	Idle      int // VMs that wait for callers,
	InUse     int // VMs that callers hold,
	Suspended int // calls that wait inside of VMs for something,
	Waiting   int // callers that wait for a VM,
	Memory    int // bytes of all VMs

	Made      uint64        // counters: VMs made,
	Released  uint64        // released, because they were not needed any more,
	Discarded uint64        // thrown away, because they hit a limit,
	Waits     uint64        // calls that had to wait for a VM,
	WaitTime  time.Duration // and how long they did
}

// Stats returns those of the pool.
func (p *Pool) Stats() Stats {
	s := Stats{
		Memory: int(p.memory.Load()), Made: p.made.Load(), Released: p.released.Load(),
		Discarded: p.broken.Load(), Waits: p.waits.Load(), WaitTime: time.Duration(p.waited.Load()),
	}
	for _, g := range p.list() {
		g.count(&s)
	}
	return s
}
