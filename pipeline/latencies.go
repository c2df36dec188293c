package pipeline

import (
	"slices"
	"sync/atomic"
	"time"
)

// LatencyBounds are the upper bounds of the buckets of Latencies.
var LatencyBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond,
	6 * time.Millisecond, 8 * time.Millisecond, 12 * time.Millisecond, 16 * time.Millisecond, 25 * time.Millisecond, 40 * time.Millisecond,
	60 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

// Latencies is a distribution of durations.
type Latencies struct {
	Count uint64
	Sum   time.Duration
	// Buckets counts durations that are at most the bound with the same index.
	Buckets [len(LatencyBounds)]uint64
}

// A latencyCounter collects Latencies. It is safe for concurrent use.
type latencyCounter struct {
	sum atomic.Int64 // nanoseconds
	// buckets counts durations between a bound and the one before; the last one those beyond all.
	buckets [len(LatencyBounds) + 1]atomic.Uint64
}

func (c *latencyCounter) add(d time.Duration) {
	i, _ := slices.BinarySearch(LatencyBounds[:], d)
	c.buckets[i].Add(1)
	c.sum.Add(int64(d))
}

func (c *latencyCounter) read() (l Latencies) {
	l.Sum = time.Duration(c.sum.Load())
	for i := range c.buckets {
		l.Count += c.buckets[i].Load()
		if i < len(l.Buckets) {
			l.Buckets[i] = l.Count
		}
	}
	return l
}
