package pipeline

import (
	"testing"
	"time"
)

func TestLatencies(t *testing.T) {
	var c latencyCounter
	for _, d := range []time.Duration{0, LatencyBounds[0], LatencyBounds[0] + 1, time.Second, time.Hour} {
		c.add(d)
	}
	got := c.read()
	if want := 2*LatencyBounds[0] + 1 + time.Second + time.Hour; got.Count != 5 || got.Sum != want {
		t.Errorf("got %d durations of %s together, want 5 of %s", got.Count, got.Sum, want)
	}
	for i, bound := range LatencyBounds {
		want := uint64(4)
		switch {
		case i == 0:
			want = 2
		case bound < time.Second:
			want = 3
		}
		if got.Buckets[i] != want {
			t.Errorf("got %d durations up to %s, want %d", got.Buckets[i], bound, want)
		}
	}
}
