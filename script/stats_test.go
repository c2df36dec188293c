package script

import (
	"fmt"
	"math"
	"slices"
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

// TestStatsAtTheirBounds: the longest names and values, and the most labels, are taken.
func TestStatsAtTheirBounds(t *testing.T) {
	longest := strings.Repeat("x", nameMax)
	var maxLabels []Label
	for i := range labelsMax {
		maxLabels = append(maxLabels, Label{fmt.Sprint("l", i), ""})
	}
	for _, test := range []struct {
		name   string
		labels []Label
		ok     bool
	}{
		{longest, nil, true}, {longest + "x", nil, false}, {"x", []Label{{longest, longest}}, true},
		{"x", []Label{{longest + "x", ""}}, false}, {"x", []Label{{"l", longest + "x"}}, false},
		{"x", maxLabels, true}, {"x", append(maxLabels, Label{"m", ""}), false},
		{"x", []Label{{"b", "1"}, {"a", "1"}, {"c", "1"}}, true}, {"x", []Label{{"b", "1"}, {"a", "1"}, {"b", "2"}}, false},
	} {
		var s Stats
		if err := s.Add(Counter, test.name, 1, test.labels...); (err == nil) != test.ok {
			t.Errorf("%d bytes and %d labels: %v", len(test.name), len(test.labels), err)
		}
	}
	var s Stats
	if err := s.Add(Counter, "zero", 0); err != nil {
		t.Errorf("a counter that stays: %v", err)
	}
	// Every character that a name may have, and those beside them.
	for c, want := range map[string]string{
		"x": "x", "a": "a", "z": "z", "A": "A", "Z": "Z", "_": "_", "a0": "a0", "a9": "a9", "0": "_", "9": "_",
		"`": "_", "{": "_", "@": "_", "[": "_", "a/": "a_", "a:": "a_", "ä": "__",
	} {
		if got := cleanName(c); got != want {
			t.Errorf("%q becomes %q, want %q", c, got, want)
		}
	}
}

// TestSeriesAreTold: neither the order of labels nor where one ends makes two series of one.
func TestSeriesAreTold(t *testing.T) {
	var s Stats
	for _, labels := range [][]Label{{{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"a", "1"}}, {{"a", "1\x00b\x001\x002"}}, {{"a", ""}}, nil} {
		if err := s.Add(Counter, "n", 1, labels...); err != nil {
			t.Fatal(err)
		}
	}
	stats, _ := s.Snapshot()
	if len(stats) != 4 || stats[0].Labels != nil || stats[0].Value != 1 {
		t.Errorf("%+v", stats)
	}
}

// TestSnapshotsDoNotChange: what was returned is not measured into, and what was taken is
// counted once.
func TestSnapshotsDoNotChange(t *testing.T) {
	var s Stats
	add := func(value float64) {
		t.Helper()
		for _, kind := range []StatKind{Counter, Gauge, Histogram} {
			if err := s.Add(kind, kind.String(), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	show := func(stats []Stat) string {
		slices.SortFunc(stats, func(a, b Stat) int { return strings.Compare(a.Name, b.Name) })
		return fmt.Sprint(stats)
	}
	add(1)
	snapshot, _ := s.Snapshot()
	before := show(snapshot)
	add(2)
	if after := show(snapshot); after != before {
		t.Errorf("a snapshot became %s, it was %s", after, before)
	}
	_ = s.Add(Counter, Counter.String(), -1)
	taken, refused := s.Take()
	before = show(taken)
	if len(taken) != 3 || refused != 1 {
		t.Errorf("%d series are taken, %d refused", len(taken), refused)
	}
	add(4)
	if after := show(taken); after != before {
		t.Errorf("what was taken became %s, it was %s", after, before)
	}
	var sum Stats
	for _, changes := range [][]Stat{taken, first(s.Take()), first(s.Take())} {
		if err := sum.Merge(changes, 1); err != nil {
			t.Fatal(err)
		}
	}
	all, refused := sum.Snapshot()
	if len(all) != 3 || all[0].Value != 7 || all[1].Value != 4 || all[2].Value != 7 || all[2].Count != 3 || all[2].Buckets[len(all[2].Buckets)-1] != 3 || refused != 3 {
		t.Errorf("all changes together are %+v, %d refused", all, refused)
	}
	if left, refused := s.Take(); left != nil || refused != 0 {
		t.Errorf("left: %+v, %d", left, refused)
	}
}

func first(stats []Stat, _ uint64) []Stat { return stats }

// TestMergeRefuses: changes that no Stats makes count as refused and change nothing else.
func TestMergeRefuses(t *testing.T) {
	buckets := func(change func(all []uint64)) []uint64 {
		all := make([]uint64, len(bounds))
		for i := range all {
			all[i] = 2
		}
		change(all)
		return all
	}
	whole := buckets(func([]uint64) {})
	for name, test := range map[string]struct {
		change Stat
		want   string
	}{
		"no kind":                {Stat{Kind: Counter - 1, Name: "x"}, "of no kind"},
		"an unknown kind":        {Stat{Kind: Histogram + 1, Name: "x"}, "of no kind"},
		"a counter down":         {Stat{Kind: Counter, Name: "x", Value: -1}, "cannot go down"},
		"a counter by nan":       {Stat{Kind: Counter, Name: "x", Value: math.NaN()}, "cannot go down"},
		"a counter with buckets": {Stat{Kind: Counter, Name: "x", Buckets: whole}, "invalid buckets"},
		"too few buckets":        {Stat{Kind: Histogram, Name: "x", Count: 2, Buckets: whole[1:]}, "invalid buckets"},
		"no buckets":             {Stat{Kind: Histogram, Name: "x", Count: 2}, "invalid buckets"},
		"buckets that fall":      {Stat{Kind: Histogram, Name: "x", Count: 2, Buckets: buckets(func(all []uint64) { all[1] = 1 })}, "invalid buckets"},
		"more than the count":    {Stat{Kind: Histogram, Name: "x", Count: 1, Buckets: whole}, "invalid buckets"},
		"no name":                {Stat{Kind: Counter, Value: 1}, "0 bytes"},
	} {
		var s Stats
		err := s.Merge([]Stat{test.change, {Kind: Counter, Name: "known", Value: 2}}, 3)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if all, refused := s.Snapshot(); len(all) != 1 || all[0].Value != 2 || refused != 4 {
			t.Errorf("%s: %+v, %d refused", name, all, refused)
		}
	}
	var s Stats
	if err := s.Merge([]Stat{{Kind: Histogram, Name: "x", Count: 2, Value: 5, Buckets: whole}, {Kind: Histogram, Name: "x", Count: 3, Value: 1, Buckets: whole}}, 0); err != nil {
		t.Error(err)
	}
	if all, _ := s.Snapshot(); all[0].Count != 5 || all[0].Value != 6 || all[0].Buckets[0] != 4 {
		t.Errorf("%+v", all)
	}
}
