package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/e2e"
)

// soakOf returns a result of 100 samples whose resident memory follows megabytes.
func soakOf(length time.Duration, megabytes func(i int) float64) *SoakResult {
	s := &SoakResult{length: length}
	for i := range 100 {
		bytes := int64(megabytes(i) * 1e6)
		s.samples = append(s.samples, memorySample{time.Duration(i+1) * length / 100, 360 * (i + 1), e2e.Memory{Resident: bytes, GoHeap: bytes / 2}})
	}
	return s
}

func TestSoakHoldsMemory(t *testing.T) {
	for _, test := range []struct {
		name      string
		length    time.Duration
		megabytes func(i int) float64
		err       string
	}{
		{"flat", time.Hour, func(int) float64 { return 60 }, ""},
		{"warms up, then flat", time.Hour, func(i int) float64 { return 60 + float64(min(i, 40))/4 }, ""},
		{"noise", time.Hour, func(i int) float64 { return 60 + float64(i%7) }, ""},
		{"grows slowly", time.Hour, func(i int) float64 { return 60 + float64(i)/10 }, "in the second half"},
		{"grows slowly, too short to tell", 10 * time.Minute, func(i int) float64 { return 60 + float64(i)/10 }, ""},
		{"grows", 10 * time.Minute, func(i int) float64 { return 60 + float64(i)/4 }, "memory grew from"},
	} {
		s := soakOf(test.length, test.megabytes)
		err := s.Err()
		if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.err)
		}
	}
}

// TestSoakNeedsFlow stops the flow of events half way.
func TestSoakNeedsFlow(t *testing.T) {
	s := soakOf(time.Hour, func(int) float64 { return 60 })
	for i := range s.samples {
		s.samples[i].delivered = min(s.samples[i].delivered, 360*50)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "no event was delivered from 30m0s to 33m0s") {
		t.Errorf("error %v, want one that says when events stopped", err)
	}
}

func TestSoakPrintsFigures(t *testing.T) {
	var out strings.Builder
	soakOf(time.Hour, func(i int) float64 { return 60 + float64(i)/10 }).Print(&out)
	for _, want := range []string{"│ 36m0s ", "│ 1h0m0s ", "│ 69.7     │", "figure soak_rss_mb_start 61.5\n", "figure soak_rss_mb_end 69.5\n",
		"figure soak_go_heap_mb_end 34.8\n", "figure soak_rss_mb_second_half 4.0\n", "figure soak_events_per_s 10\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
