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

func TestQuantile(t *testing.T) {
	var c latencyCounter
	empty := c.read()
	if got := empty.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: got %s, want 0", got)
	}
	for range 90 {
		c.add(700 * time.Microsecond)
	}
	before := c.read()
	for range 10 {
		c.add(3500 * time.Microsecond)
	}
	c.add(time.Hour)
	l := c.read()
	late := l.Since(&before)
	for _, test := range []struct {
		of       *Latencies
		share    float64
		from, to time.Duration
	}{
		{&l, 0.5, 500 * time.Microsecond, time.Millisecond},
		{&l, 0.95, 3 * time.Millisecond, 4 * time.Millisecond},
		{&l, 1, 10 * time.Second, 10 * time.Second},
		{&late, 0.5, 3 * time.Millisecond, 4 * time.Millisecond},
	} {
		if got := test.of.Quantile(test.share); got < test.from || got > test.to {
			t.Errorf("quantile %v of %d: got %s, want %s to %s", test.share, test.of.Count, got, test.from, test.to)
		}
	}
}
