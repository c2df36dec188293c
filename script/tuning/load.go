package tuning

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A loadGenerator runs batches in several goroutines at the same time.
type loadGenerator struct {
	script     script.Script
	pool       *pool.Pool
	batches    []*event.Batch
	workers    []worker
	peakBefore uint64 // bytes of the process before
	phase      atomic.Int32
	completed  atomic.Int32 // batches that have come out in the window, as far as that matters
}

// The phases of a round.
const (
	phaseWarmUp = iota
	phaseMeasure
	phaseStop
)

// A worker is one goroutine of a loadGenerator.
type worker struct {
	result event.Result
	next   int // index of the next batch
	roundCounts
	_ [64]byte // keeps the next worker out of the cache line
}

// A roundCounts counts what a worker has done in a round.
type roundCounts struct {
	latency              histogram
	events, runs, failed uint64
	err                  error
}

func newLoadGenerator(loaded script.Script, vms *pool.Pool, batches []*event.Batch, size, sinks int) *loadGenerator {
	c := &loadGenerator{script: loaded, pool: vms, batches: batches, workers: make([]worker, size), peakBefore: peakMemory()}
	for i := range c.workers {
		c.workers[i].result.Outputs = make([]event.Output, sinks)
		c.workers[i].next = i * len(batches) / size
	}
	return c
}

// measure has all workers run batches and measures for about long: not at the beginning
// and at the end, when not all of them run.
func (c *loadGenerator) measure(ctx context.Context, long time.Duration) (r Reading, err error) {
	for i := range c.workers {
		c.workers[i].roundCounts = roundCounts{}
	}
	runtime.GC()
	c.phase.Store(phaseWarmUp)
	var done sync.WaitGroup
	for i := range c.workers {
		done.Go(func() { c.workers[i].run(ctx, c) })
	}
	sleep(ctx, long/4)
	r = c.measureWindow(ctx, long)
	done.Wait()
	for i := range c.workers {
		if err == nil {
			err = c.workers[i].err
		}
	}
	c.addCounts(&r)
	r.Peak = peakMemory()
	r.Added = r.Peak - min(c.peakBefore, r.Peak)
	return r, err
}

// windowMax is how many times longer a round may last when batches take long.
const windowMax = 4

// measureWindow waits for the measured part of a round. It lasts longer when fewer batches
// have completed than there are workers.
func (c *loadGenerator) measureWindow(ctx context.Context, long time.Duration) (r Reading) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	waits, cpu, began := c.pool.Stats(), processorTime(), time.Now()
	c.completed.Store(0)
	c.phase.Store(phaseMeasure)
	sleep(ctx, long)
	for ctx.Err() == nil && c.needsMoreBatches(time.Since(began) > windowMax*long) {
		sleep(ctx, time.Millisecond)
	}
	c.phase.Store(phaseStop)
	r.Took, r.CPU = time.Since(began), processorTime()-cpu
	stats := c.pool.Stats()
	runtime.ReadMemStats(&after)
	r.Bytes, r.Allocs = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	r.VMs, r.VMMemory = stats.Idle+stats.InUse, uint64(stats.Memory)
	r.Waits, r.WaitTime = stats.Waits-waits.Waits, stats.WaitTime-waits.WaitTime
	return r
}

// needsMoreBatches reports whether to wait for more batches. When it is late, one batch is
// enough.
func (c *loadGenerator) needsMoreBatches(late bool) bool {
	out := int(c.completed.Load())
	return out < len(c.workers) && !(late && out > 0)
}

func sleep(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// run runs batches. Batches that complete in the window count. The latency of a batch
// counts even if it completes later, or a worker that starves would not show.
func (m *worker) run(ctx context.Context, c *loadGenerator) {
	failed := uint64(0)
	count := func(*event.Batch, *script.LimitError) error {
		failed += uint64(len(m.result.Dead))
		return nil
	}
	for m.err == nil {
		b := c.batches[m.next%len(c.batches)]
		m.next++
		failed = 0
		began := time.Now()
		m.err = script.RunAll(ctx, c.script, b, &m.result, 0, count)
		took, phase := time.Since(began), c.phase.Load()
		if phase != phaseWarmUp {
			m.latency.record(took)
		}
		if phase == phaseMeasure {
			m.events, m.runs, m.failed = m.events+uint64(b.Len()), m.runs+1, m.failed+failed
			if int(c.completed.Load()) < len(c.workers) {
				c.completed.Add(1)
			}
		}
		if phase == phaseStop {
			return
		}
	}
	c.completed.Store(math.MaxInt32)
}

// addCounts adds up the counts of the workers.
func (c *loadGenerator) addCounts(r *Reading) {
	var all histogram
	for i := range c.workers {
		m := &c.workers[i]
		r.Events, r.Runs, r.Failed = r.Events+m.events, r.Runs+m.runs, r.Failed+m.failed
		all.merge(&m.latency)
	}
	r.P50, r.P90, r.P99, r.Max = all.quantile(.5), all.quantile(.9), all.quantile(.99), all.max
}
