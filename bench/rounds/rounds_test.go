package rounds

import (
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 9}, 3},
	} {
		if got := Median(test.values); got != test.want {
			t.Errorf("Median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestMeasureCountsEveryUnit(t *testing.T) {
	var sink []byte
	results := Measure([]Contestant{
		{"idle", func(n int) { time.Sleep(time.Duration(n) * time.Microsecond) }},
		{"allocating", func(n int) {
			for range n {
				sink = make([]byte, 1024)
			}
		}},
	}, 3, 2*time.Millisecond)
	_ = sink
	if got := results[0].Nanoseconds; got < 1000 {
		t.Errorf("sleeping a microsecond took %v ns", got)
	}
	if got := results[1].Bytes; got < 1024 || got > 1200 {
		t.Errorf("allocating 1024 bytes allocated %v", got)
	}
	if ratio := Ratio(results, "allocating", "idle"); ratio < 1 {
		t.Errorf("allocating is %v times as fast as sleeping", ratio)
	}
}

func TestMeasureEqually(t *testing.T) {
	units := map[string][]int{}
	count := func(name string, unit time.Duration) Contestant {
		return Contestant{name, func(n int) {
			units[name] = append(units[name], n)
			time.Sleep(time.Duration(n) * unit)
		}}
	}
	MeasureEqually([]Contestant{count("quick", time.Microsecond), count("slow", 3*time.Microsecond)}, 4, 2*time.Millisecond)
	quick, slow := units["quick"][len(units["quick"])-4:], units["slow"][len(units["slow"])-4:]
	if !slices.Equal(quick, slow) {
		t.Errorf("one did %v units, the other %v", quick, slow)
	}
}
