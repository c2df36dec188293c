// Package pool keeps virtual machines for scripts. One Pool serves any number of
// scripts; equal ones, by the key they give, share their VMs.
//
// A caller gets a free VM, opens one where Settings allow it, or waits. No lock is held
// while a VM is in use. Callers wait in the order of their calls, but a running caller
// may take a VM that has just become free, because waking a goroutine for each call costs
// several times a short call. Every few calls a VM is handed to the caller that has
// waited longest, so that no caller starves.
//
// All types are safe for concurrent use.
package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A VM is a virtual machine with a script loaded.
type VM interface {
	// Close frees the VM. The pool calls it when no caller holds the VM.
	Close()
	// Broken reports whether the VM can take no more calls. Only the holder calls it.
	Broken() bool
	// Memory returns the bytes that the VM takes. Only the holder calls it.
	Memory() int
	// Progress returns how many computations the VM has begun, and whether one runs
	// now: one that waits, be it for a processor, does not run. One goroutine at a time
	// calls it, at any time until Close.
	Progress() (runs uint32, computes bool)
}

// A Maker opens the VMs of one script.
type Maker interface {
	Open(ctx context.Context) (VM, error)
	// Close frees what the VMs share, after the last of them is closed.
	Close()
}

// ErrClosed is the error of Acquire after the script was unloaded.
var ErrClosed = errors.New("the script is unloaded")

// A Pool keeps the VMs of scripts.
type Pool struct {
	settings  atomic.Pointer[Settings]
	memory    atomic.Int64 // bytes of all VMs
	made      atomic.Uint64
	released  atomic.Uint64
	discarded atomic.Uint64
	waits     atomic.Uint64
	waitTime  atomic.Int64

	waiters sync.Pool // *waiter

	mu     sync.Mutex
	groups map[string]*Group
	all    map[*Group]struct{} // and those that are closing

	monitored     atomic.Bool // the monitor runs
	monitorSleeps atomic.Bool // and sleeps for longer than shortTick
	monitorWake   chan struct{}
}

// New returns a pool. It needs no closing: its VMs belong to its groups.
func New(s Settings) *Pool {
	p := &Pool{groups: make(map[string]*Group), all: make(map[*Group]struct{}), monitorWake: make(chan struct{}, 1)}
	p.waiters.New = func() any { return &waiter{handoff: make(chan *Member, 1)} }
	s = s.withDefaults()
	p.settings.Store(&s)
	return p
}

// Resize changes the settings. Surplus VMs are closed as they become free.
func (p *Pool) Resize(s Settings) {
	s = s.withDefaults()
	p.settings.Store(&s)
	for _, g := range p.listGroups() {
		g.applySettings()
	}
	p.startMonitor()
}

func (p *Pool) listGroups() []*Group {
	p.mu.Lock()
	defer p.mu.Unlock()
	groups := make([]*Group, 0, len(p.all))
	for g := range p.all {
		groups = append(groups, g)
	}
	return groups
}

// Join returns the group of VMs for a key, which stands for the code and for everything
// else that makes VMs differ. It calls maker when the group is new. Each Join needs a
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

// hasMemory reports whether the bound on memory leaves room for more bytes.
func (p *Pool) hasMemory(bytes int) bool {
	return p.memory.Load()+int64(bytes) <= int64(p.settings.Load().Memory)
}

// Stats are the gauges and counters of a pool.
type Stats struct {
	// Gauges.
	Scripts   int // loaded scripts
	Idle      int // free VMs
	InUse     int // VMs that callers hold
	Suspended int // calls that wait inside a VM, for a function of Go
	Waiting   int // callers that wait for a VM
	Memory    int // bytes of all VMs

	// Counters.
	Made      uint64        // VMs opened
	Released  uint64        // VMs closed because they were no longer needed
	Discarded uint64        // VMs closed because they hit a limit
	Waits     uint64        // calls that waited for a VM
	WaitTime  time.Duration // total time that calls waited for a VM
}

// Stats returns the current gauges and counters.
func (p *Pool) Stats() Stats {
	s := Stats{
		Memory: int(p.memory.Load()), Made: p.made.Load(), Released: p.released.Load(),
		Discarded: p.discarded.Load(), Waits: p.waits.Load(), WaitTime: time.Duration(p.waitTime.Load()),
	}
	for _, g := range p.listGroups() {
		g.addStats(&s)
	}
	return s
}
