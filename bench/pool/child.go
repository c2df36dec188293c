package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A reading is what a child tells of one slice.
type reading struct {
	Calls  int
	Took   time.Duration
	Bytes  uint64 // allocated by Go
	Allocs uint64
	Peak   int // kilobytes of the process so far
	CPU    time.Duration
}

// A crew is goroutines that make calls at the same time.
type crew struct {
	size  int
	call  func() error
	mu    sync.Mutex
	start chan struct{}
	calls int
	done  sync.WaitGroup
}

func newCrew(size int, call func() error) *crew {
	c := &crew{size: size, call: call, start: make(chan struct{})}
	for i := range size {
		go c.work(i, c.start)
	}
	return c
}

// work makes this goroutine's share of the calls each time.
func (c *crew) work(number int, start chan struct{}) {
	for {
		<-start
		c.mu.Lock()
		start = c.start
		share := c.calls / c.size
		if number < c.calls%c.size {
			share++
		}
		c.mu.Unlock()
		for range share {
			must(c.call())
		}
		c.done.Done()
	}
}

// run has the crew make so many calls.
func (c *crew) run(calls int) time.Duration {
	c.done.Add(c.size)
	c.mu.Lock()
	c.calls = calls
	start := c.start
	c.start = make(chan struct{})
	c.mu.Unlock()
	began := time.Now()
	close(start)
	c.done.Wait()
	return time.Since(began)
}

// measure has the crew make so many calls, and reads what that took.
func (c *crew) measure(calls int) reading {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	took := c.run(calls)
	cpu = processorTime() - cpu
	runtime.ReadMemStats(&after)
	return reading{calls, took, after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs, peak(), cpu}
}

// warm finds out how many calls fill a slice. A pool that makes VMs as it goes takes
// a while until it is as quick as it gets.
func (c *crew) warm(slice time.Duration) int {
	calls, began := c.size/8, time.Now()
	for {
		took := c.run(calls)
		fit := float64(slice) / float64(took)
		if spent := time.Since(began); spent > 5*slice && fit > 0.7 && fit < 1.4 || spent > 20*slice {
			return max(1, int(float64(calls)*fit))
		}
		calls = max(1, int(float64(calls)*min(fit, 8)))
	}
}

// child serves a parent: for each line it reads it runs one slice and writes a line.
// What the calls print goes to standard output; readings go to file 3.
func child(name, job string, goroutines int, slice time.Duration) {
	all := contestants()
	one := all[slices.IndexFunc(all, func(c contestant) bool { return c.name == name })]
	readings := os.NewFile(3, "readings")
	c := newCrew(goroutines, one.open(bodyOf(job)))
	calls := c.warm(slice)
	lines := bufio.NewScanner(os.Stdin)
	for _, _ = fmt.Fprintln(readings, "warm"); lines.Scan(); {
		r := c.measure(calls)
		_, _ = fmt.Fprintln(readings, r.Calls, int64(r.Took), r.Bytes, r.Allocs, r.Peak, int64(r.CPU))
	}
}

// processorTime is what this process has used of all cores.
func processorTime() time.Duration {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// peak is the most memory that this process ever had, in kilobytes.
func peak() (kilobytes int) {
	f, err := os.Open("/proc/self/status")
	must(err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kilobytes); n == 1 {
			return kilobytes
		}
	}
	return 0
}
