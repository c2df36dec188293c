//go:build cgo && luajit

package luajit

/*
#include "vm.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	watchInterval = 5 * time.Millisecond // precision of deadlines
	idleTicks     = 2                    // idle ticks after which the watchdog sleeps; waking it costs less than more ticks
)

// A Watchdog ends runs that take too long. Every few milliseconds it reads the state that each VM
// shares, so that a run needs no clock of its own. It sleeps while nothing runs.
type Watchdog struct {
	interval time.Duration
	mu       sync.Mutex
	vms      map[*VM]struct{}
	asleep   atomic.Bool
	wake     chan struct{}
	quit     chan struct{}
	done     sync.WaitGroup
}

// starvedFactor is how many times its limit a run may take by the wall clock if it gets too little
// CPU time to reach the limit.
const starvedFactor = 10

// An observation is the watchdog's last observation of a VM, and the time of its changes.
type observation struct {
	number, event uint32
	run, at       instant // the start of the run, and of the event
}

// A timeAccount counts the nanoseconds that a script has used before its last call of a Go
// function: in the run, and in the event.
type timeAccount struct{ run, event atomic.Int64 }

func (a *timeAccount) add(d time.Duration) {
	a.run.Add(int64(d))
	a.event.Add(int64(d))
}

// reset avoids the stores, which are expensive, for a script that calls no Go function.
func (a *timeAccount) reset() {
	if a.run.Load() != 0 {
		a.run.Store(0)
	}
	if a.event.Load() != 0 {
		a.event.Store(0)
	}
}

// An instant is a point in time, by the wall clock and by the CPU time of the running thread, which
// is negative if unknown.
type instant struct {
	clock time.Time
	spent time.Duration
}

// before returns the instant by both clocks that was spent nanoseconds before now.
func (now instant) before(spent int64) instant {
	d := time.Duration(spent)
	now.clock, now.spent = now.clock.Add(-d), now.spent-d
	return now
}

// exceeds reports whether a limit that began at since is used up. It counts CPU time, so that a
// good script is not stopped on an overloaded machine.
func (now instant) exceeds(since instant, limit time.Duration) bool {
	elapsed := now.clock.Sub(since.clock)
	if now.spent < 0 {
		return elapsed >= limit
	}
	return now.spent-since.spent >= limit || elapsed >= starvedFactor*limit
}

// NewWatchdog starts a watchdog.
func NewWatchdog() *Watchdog { return newWatchdog(watchInterval) }

func newWatchdog(interval time.Duration) *Watchdog {
	w := &Watchdog{
		interval: interval,
		vms:      make(map[*VM]struct{}),
		wake:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
	}
	w.done.Go(w.run)
	return w
}

// Close ends the watchdog. Close its VMs first.
func (w *Watchdog) Close() {
	close(w.quit)
	w.done.Wait()
}

func (w *Watchdog) add(vm *VM) {
	w.mu.Lock()
	w.vms[vm] = struct{}{}
	w.mu.Unlock()
}

func (w *Watchdog) remove(vm *VM) {
	w.mu.Lock()
	delete(w.vms, vm)
	w.mu.Unlock()
}

// wakeUp wakes a sleeping watchdog. A VM announces that it is about to run before it calls wakeUp,
// and the watchdog checks all VMs after it has marked itself asleep, so one of them always notices
// the other.
func (w *Watchdog) wakeUp() {
	if w.asleep.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *Watchdog) run() {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for idle := 0; ; {
		select {
		case <-w.quit:
			return
		case <-ticker.C: // the tick may be old, so read the clock
			if w.inspect(time.Now()) {
				idle = 0
			} else {
				idle++
			}
		}
		if idle >= idleTicks {
			ticker.Stop()
			if !w.sleep() {
				return
			}
			ticker.Reset(w.interval)
			idle = 0
		}
	}
}

// sleep waits until something runs. It returns false when the watchdog is closed.
func (w *Watchdog) sleep() bool {
	w.asleep.Store(true)
	defer w.asleep.Store(false)
	if w.inspect(time.Now()) {
		return true
	}
	select {
	case <-w.quit:
		return false
	case <-w.wake:
		return true
	}
}

// inspect stops late runs, and reports whether anything runs or is about to run.
func (w *Watchdog) inspect(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := false
	for vm := range w.vms {
		busy = vm.inspect(now) || busy
	}
	return busy
}

func (vm *VM) inspect(clock time.Time) (busy bool) {
	run, seen := &vm.c.run, &vm.observed
	if running := vm.load32(&run.running); running != C.PLUA_RUNNING {
		return running != C.PLUA_IDLE
	}
	number, event := vm.load32(&run.number), vm.load32(&run.event)
	now := instant{clock, time.Duration(C.plua_vm_cpu_time(vm.c))}
	if number != seen.number {
		*seen = observation{number, event, now.before(vm.spent.run.Load()), now.before(vm.spent.event.Load())}
	} else if event != seen.event {
		seen.event, seen.at = event, now
	}
	switch {
	case vm.load32(&run.stop) != 0:
		C.plua_vm_stop_run(vm.c, C.uint32_t(number), C.uint32_t(event), C.PLUA_OK)
	case vm.givenUp() || now.exceeds(seen.run, vm.opts.BatchTime):
		C.plua_vm_stop_run(vm.c, C.uint32_t(number), C.uint32_t(event), C.PLUA_BATCH_TIME)
	case event != C.PLUA_NO_EVENT && now.exceeds(seen.at, vm.opts.EventTime):
		C.plua_vm_stop_run(vm.c, C.uint32_t(number), C.uint32_t(event), C.PLUA_EVENT_TIME)
	}
	return true
}
