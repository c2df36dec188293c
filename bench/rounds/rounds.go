// Package rounds measures contestants in turns, so that a drifting speed of the machine
// affects all alike, and prints medians and ratios. Every other round runs in reverse
// order, and each turn starts with a collected heap, so that no contestant always pays
// for its predecessor.
package rounds

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// A Contestant does units of work.
type Contestant struct {
	Name string
	Run  func(n int)
}

// A Result holds the measurements of one contestant.
type Result struct {
	Name        string
	Nanoseconds float64 // median over the rounds, per unit
	Bytes       float64 // allocated by Go per unit
	Allocs      float64
	rounds      []float64
}

// Measure runs every contestant for about slice in every round.
func Measure(contestants []Contestant, count int, slice time.Duration) []Result {
	units := make([]int, len(contestants))
	for i, c := range contestants {
		units[i] = calibrate(c, slice)
	}
	return measureAll(contestants, count, units)
}

// MeasureEqually is Measure for contestants that differ little: all do the same number of
// units per turn, because the cost of a unit depends on how many preceded it on the
// collected heap.
func MeasureEqually(contestants []Contestant, count int, slice time.Duration) []Result {
	least := math.MaxInt
	for _, c := range contestants {
		least = min(least, calibrate(c, slice))
	}
	return measureAll(contestants, count, slices.Repeat([]int{least}, len(contestants)))
}

func measureAll(contestants []Contestant, count int, units []int) []Result {
	results := make([]Result, len(contestants))
	for i, c := range contestants {
		results[i].Name = c.Name
	}
	for round := range count {
		for i := range contestants {
			if round%2 == 1 {
				i = len(contestants) - 1 - i
			}
			measure(contestants[i], units[i], &results[i])
		}
	}
	for i := range results {
		r := &results[i]
		r.Nanoseconds = Median(r.rounds)
		r.Bytes /= float64(count * units[i])
		r.Allocs /= float64(count * units[i])
	}
	return results
}

// calibrate returns how many units fill the slice, and warms the contestant up.
func calibrate(c Contestant, slice time.Duration) int {
	n := 256
	for {
		started := time.Now()
		c.Run(n)
		took := time.Since(started)
		if took >= slice/4 {
			return max(1, int(float64(n)*float64(slice)/float64(took)))
		}
		n *= 2
	}
}

func measure(c Contestant, n int, r *Result) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	started := time.Now()
	c.Run(n)
	took := time.Since(started)
	runtime.ReadMemStats(&after)
	r.rounds = append(r.rounds, float64(took.Nanoseconds())/float64(n))
	r.Bytes += float64(after.TotalAlloc - before.TotalAlloc)
	r.Allocs += float64(after.Mallocs - before.Mallocs)
}

// Ratio returns how many times faster a is than b, as the median over the rounds.
func Ratio(results []Result, a, b string) float64 {
	ours, theirs := find(results, a), find(results, b)
	ratios := make([]float64, len(ours.rounds))
	for i := range ratios {
		ratios[i] = theirs.rounds[i] / ours.rounds[i]
	}
	return Median(ratios)
}

func find(results []Result, name string) Result {
	for _, r := range results {
		if r.Name == name {
			return r
		}
	}
	panic("rounds: no contestant is called " + name)
}

// Median returns the median of values, or 0 if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Print prints a table of results with ratios to the contestant reference.
func Print(w io.Writer, title string, results []Result, reference string) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("%s", title)
	t.AppendHeader(table.Row{"", "ns", "min", "max", "B/op", "allocs", "speed, " + reference + " = 1"})
	for _, r := range results {
		t.AppendRow(table.Row{r.Name, fmt.Sprintf("%.1f", r.Nanoseconds), fmt.Sprintf("%.1f", slices.Min(r.rounds)),
			fmt.Sprintf("%.1f", slices.Max(r.rounds)), fmt.Sprintf("%.1f", r.Bytes), fmt.Sprintf("%.2f", r.Allocs),
			fmt.Sprintf("%.2f", Ratio(results, r.Name, reference))})
	}
	t.Render()
	fmt.Fprintln(w)
}
