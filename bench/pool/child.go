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

// A reading holds the figures of one slice, as a child reports them.
type reading struct {
	Calls  int
	Took   time.Duration
	Bytes  uint64 // allocated by Go
	Allocs uint64
	Peak   int // peak memory of the process so far, in kilobytes
	CPU    time.Duration
}

// workers are goroutines that make calls concurrently.
type workers struct {
	size  int
	call  func() error
	mu    sync.Mutex
	start chan struct{}
	calls int
	done  sync.WaitGroup
}

func startWorkers(size int, call func() error) *workers {
	c := &workers{size: size, call: call, start: make(chan struct{})}
	for i := range size {
		go c.loop(i, c.start)
	}
	return c
}

// loop makes this goroutine's part of the calls, once per start.
func (c *workers) loop(number int, start chan struct{}) {
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

// run makes the workers do a number of calls and returns the time it took.
func (c *workers) run(calls int) time.Duration {
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

// measure makes the workers do a number of calls and returns the figures.
func (c *workers) measure(calls int) reading {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	took := c.run(calls)
	cpu = processorTime() - cpu
	runtime.ReadMemStats(&after)
	return reading{calls, took, after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs, peakKilobytes(), cpu}
}

// calibrate returns how many calls fill a slice. It first warms up: a pool that creates VMs
// on demand takes a while to reach its full speed.
func (c *workers) calibrate(slice time.Duration) int {
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

// serveParent runs one slice for each line that it reads and writes its reading to file 3.
// The calls print to standard output.
func serveParent(name, job string, goroutines int, slice time.Duration) {
	all := contestants()
	one := all[slices.IndexFunc(all, func(c contestant) bool { return c.name == name })]
	readings := os.NewFile(3, "readings")
	c := startWorkers(goroutines, one.open(bodyOf(job)))
	calls := c.calibrate(slice)
	lines := bufio.NewScanner(os.Stdin)
	for _, _ = fmt.Fprintln(readings, "warm"); lines.Scan(); {
		r := c.measure(calls)
		_, _ = fmt.Fprintln(readings, r.Calls, int64(r.Took), r.Bytes, r.Allocs, r.Peak, int64(r.CPU))
	}
}

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// peakKilobytes returns the peak memory of this process.
func peakKilobytes() (kilobytes int) {
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
