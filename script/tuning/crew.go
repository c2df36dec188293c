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

// A crew is goroutines that run batches at the same time.
type crew struct {
	script  script.Script
	pool    *pool.Pool
	batches []*event.Batch
	members []member
	base    uint64 // bytes of the process before
	phase   atomic.Int32
	out     atomic.Int32 // batches that have come out in the window, as far as that matters
}

// The phases of a round.
const (
	beginning = iota
	measuring
	ending
)

// A member is one of them.
type member struct {
	result event.Result
	next   int // batch
	tally
	_ [64]byte // the next member is another processor's
}

// A tally is what a member has done in a round.
type tally struct {
	latency              histogram
	events, runs, failed uint64
	err                  error
}

func newCrew(loaded script.Script, vms *pool.Pool, batches []*event.Batch, size, sinks int) *crew {
	c := &crew{script: loaded, pool: vms, batches: batches, members: make([]member, size), base: peak()}
	for i := range c.members {
		c.members[i].result.Outputs = make([]event.Output, sinks)
		c.members[i].next = i * len(batches) / size
	}
	return c
}

// measure has all members run batches, and reads what happened in about so long of
// it: not at the beginning and at the end, when they do not all run.
func (c *crew) measure(ctx context.Context, long time.Duration) (r Reading, err error) {
	for i := range c.members {
		c.members[i].tally = tally{}
	}
	runtime.GC()
	c.phase.Store(beginning)
	var done sync.WaitGroup
	for i := range c.members {
		done.Go(func() { c.members[i].work(ctx, c) })
	}
	sleep(ctx, long/4)
	r = c.window(ctx, long)
	done.Wait()
	for i := range c.members {
		if err == nil {
			err = c.members[i].err
		}
	}
	c.sum(&r)
	r.Peak = peak()
	r.Added = r.Peak - min(c.base, r.Peak)
	return r, err
}

// longMax is how many times longer a round may last when batches take long.
const longMax = 4

// window lets the measured part of a round pass. It is longer when fewer batches have
// come out than there are members.
func (c *crew) window(ctx context.Context, long time.Duration) (r Reading) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	waits, cpu, began := c.pool.Stats(), processorTime(), time.Now()
	c.out.Store(0)
	c.phase.Store(measuring)
	sleep(ctx, long)
	for ctx.Err() == nil && c.few(time.Since(began) > longMax*long) {
		sleep(ctx, time.Millisecond)
	}
	c.phase.Store(ending)
	r.Took, r.CPU = time.Since(began), processorTime()-cpu
	stats := c.pool.Stats()
	runtime.ReadMemStats(&after)
	r.Bytes, r.Allocs = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	r.VMs, r.VMMemory = stats.Idle+stats.InUse, uint64(stats.Memory)
	r.Waits, r.WaitTime = stats.Waits-waits.Waits, stats.WaitTime-waits.WaitTime
	return r
}

// few tells whether to wait for more batches; in the end one is enough.
func (c *crew) few(late bool) bool {
	out := int(c.out.Load())
	return out < len(c.members) && !(late && out > 0)
}

func sleep(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// work runs batches. Those that come out in the window count; how long one took
// counts also when it came out later, or nobody would see who waits for ever.
func (m *member) work(ctx context.Context, c *crew) {
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
		if phase != beginning {
			m.latency.add(took)
		}
		if phase == measuring {
			m.events, m.runs, m.failed = m.events+uint64(b.Len()), m.runs+1, m.failed+failed
			if int(c.out.Load()) < len(c.members) {
				c.out.Add(1)
			}
		}
		if phase == ending {
			return
		}
	}
	c.out.Store(math.MaxInt32)
}

// sum adds up what the members have done.
func (c *crew) sum(r *Reading) {
	var all histogram
	for i := range c.members {
		m := &c.members[i]
		r.Events, r.Runs, r.Failed = r.Events+m.events, r.Runs+m.runs, r.Failed+m.failed
		all.merge(&m.latency)
	}
	r.P50, r.P90, r.P99, r.Max = all.quantile(.5), all.quantile(.9), all.quantile(.99), all.max
}
