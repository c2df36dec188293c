package tuning

import (
	"math/bits"
	"time"
)

// A histogram counts durations in buckets whose width is at most 1/32 of their value. Each
// of the goroutines that generate load has one, of 8 KiB: hdrhistogram-go takes 41 KB and
// twice the time for each value.
type histogram struct {
	buckets [64 * steps]uint32
	count   uint64
	max     time.Duration
}

// steps is the number of buckets between one power of two and the next.
const steps = 32

func (h *histogram) record(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

// bucketOf is exact below 2·steps; above, it keeps the leading bits.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 2*steps {
		return int(n)
	}
	shift := bits.Len64(n) - bits.Len64(2*steps-1)
	return shift*steps + int(n>>shift)
}

// bucketMiddle returns the middle of bucket i.
func bucketMiddle(i int) time.Duration {
	if i < 2*steps {
		return time.Duration(i)
	}
	shift := i/steps - 1
	low := uint64(i-shift*steps) << shift
	return time.Duration(low + 1<<shift/2)
}

// quantile returns the duration that a share of all durations does not exceed.
func (h *histogram) quantile(share float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	wanted := uint64(share * float64(h.count))
	var seen uint64
	for i, n := range h.buckets {
		if seen += uint64(n); seen > wanted {
			return min(bucketMiddle(i), h.max)
		}
	}
	return h.max
}
