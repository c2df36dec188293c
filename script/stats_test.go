package script

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStats(t *testing.T) {
	var s Stats
	add := func(kind StatKind, name string, value float64, labels ...Label) {
		t.Helper()
		if err := s.Add(kind, name, value, labels...); err != nil {
			t.Error(err)
		}
	}
	add(Counter, "seen", 1)
	add(Counter, "seen", 2)
	add(Counter, "seen", 1, Label{"b", "2"}, Label{"a", "1"})
	add(Counter, "seen", 1, Label{"a", "1"}, Label{"b", "2"})
	add(Gauge, "depth", 5)
	add(Gauge, "depth", -3)
	add(Histogram, "size", 0.5)
	add(Histogram, "size", 7)
	add(Histogram, "size", 1e9)
	stats, refused := s.Snapshot()
	var got []string
	for _, stat := range stats {
		got = append(got, fmt.Sprintf("%v %s %v %g %d", stat.Kind, stat.Name, stat.Labels, stat.Value, stat.Count))
	}
	want := []string{"gauge depth [] -3 0", "counter seen [] 3 0", "counter seen [{a 1} {b 2}] 2 0", "histogram size [] 1.0000000075e+09 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if refused != 0 {
		t.Errorf("%d refused", refused)
	}
	histogram := stats[3]
	for i, bound := range histogram.Bounds {
		want := uint64(0)
		if bound >= 0.5 {
			want++
		}
		if bound >= 7 {
			want++
		}
		if histogram.Buckets[i] != want {
			t.Errorf("bucket up to %g holds %d, want %d", bound, histogram.Buckets[i], want)
		}
	}
}

func TestStatsRefuse(t *testing.T) {
	long := strings.Repeat("x", nameMax+1)
	tests := []struct {
		name   string
		kind   StatKind
		stat   string
		value  float64
		labels []Label
		reason string
	}{
		{"no name", Counter, "", 1, nil, "name"},
		{"a long name", Counter, long, 1, nil, "name"},
		{"another kind", Gauge, "known", 1, nil, "is a counter, not a gauge"},
		{"a counter that goes down", Counter, "known", -1, nil, "down"},
		{"a counter by nan", Counter, "known", math.NaN(), nil, "down"},
		{"a label's name", Counter, "known", 1, []Label{{"", "c"}}, "label"},
		{"a label's value", Counter, "known", 1, []Label{{"a", long}}, "bytes"},
		{"a label twice", Counter, "known", 1, []Label{{"a", "1"}, {"a", "2"}}, "twice"},
		{"many labels", Counter, "known", 1, make([]Label, labelsMax+1), "labels"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var s Stats
			if err := s.Add(Counter, "known", 1); err != nil {
				t.Fatal(err)
			}
			err := s.Add(test.kind, test.stat, test.value, test.labels...)
			if err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("error is %v, want %q", err, test.reason)
			}
			stats, refused := s.Snapshot()
			if refused != 1 || stats[0].Value != 1 {
				t.Errorf("%d refused, the counter is at %g", refused, stats[0].Value)
			}
		})
	}
}

func TestStatsAreBounded(t *testing.T) {
	var s Stats
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range seriesMax {
				_ = s.Add(Counter, "seen", 1, Label{"id", fmt.Sprint(g, i)})
			}
		})
	}
	group.Wait()
	if stats, refused := s.Snapshot(); len(stats) != seriesMax || refused != 3*seriesMax {
		t.Errorf("%d series, %d refused", len(stats), refused)
	}
	if err := s.Add(Counter, "seen", 1, Label{"id", "more"}); err == nil || !strings.Contains(err.Error(), "fewer") {
		t.Errorf("error is %v", err)
	}
}

func TestStatsCleanNames(t *testing.T) {
	var s Stats
	for _, name := range []string{"talaria.key-1", "talaria_key_1", "talaria key 1"} {
		if err := s.Add(Counter, name, 1, Label{"b.c", "x.y"}, Label{"1a", "z"}); err != nil {
			t.Error(err)
		}
	}
	stats, _ := s.Snapshot()
	if got := fmt.Sprintf("%s %v %g", stats[0].Name, stats[0].Labels, stats[0].Value); len(stats) != 1 || got != "talaria_key_1 [{_a z} {b_c x.y}] 3" {
		t.Errorf("got %s of %d", got, len(stats))
	}
}
