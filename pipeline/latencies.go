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
	Count uint64        `json:"count"`
	Sum   time.Duration `json:"sum_ns"`
	// Buckets counts durations that are at most the bound with the same index.
	Buckets [len(LatencyBounds)]uint64 `json:"buckets"`
}

// Since returns the distribution of those that an earlier reading lacks.
func (l *Latencies) Since(earlier *Latencies) Latencies {
	d := Latencies{Count: l.Count - earlier.Count, Sum: l.Sum - earlier.Sum}
	for i := range d.Buckets {
		d.Buckets[i] = l.Buckets[i] - earlier.Buckets[i]
	}
	return d
}

// Quantile returns the duration that a share of all does not exceed, between the bounds of its
// bucket; the last bound for those beyond it, and 0 if there are none.
func (l *Latencies) Quantile(share float64) time.Duration {
	rank := share * float64(l.Count)
	before, bound := uint64(0), time.Duration(0)
	for i, count := range l.Buckets {
		if l.Count > 0 && float64(count) >= rank && count > before {
			part := (rank - float64(before)) / float64(count-before)
			return bound + time.Duration(part*float64(LatencyBounds[i]-bound))
		}
		before, bound = count, LatencyBounds[i]
	}
	if l.Count == 0 {
		return 0
	}
	return bound
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
