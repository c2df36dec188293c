// Package tuning measures a user's script with different pools of VMs, numbers of
// goroutines and CPU cores, and batch sizes, on a sample of the user's events. It writes
// the report as tables, as Markdown and as an HTML page.
//
// Each setup runs in a process of its own, so that its memory and CPU time can be
// measured. Setups that are compared take turns in several rounds, every other round in
// the opposite order. Figures are medians of the rounds.
//
// One goroutine uses a Trial. A Report is read-only.
package tuning

import (
	"slices"
	"time"

	"github.com/perigeedb/perigee/script/pool"
)

// A Setup is one way to run the script.
type Setup struct {
	Pool       string        // its name
	Settings   pool.Settings `json:"-"`
	Goroutines int           // that run batches at the same time
	Cores      int           // that they may use
	Batch      int           // events in a batch
}

// A Reading holds the figures of one round of a setup.
type Reading struct {
	Events, Runs, Failed uint64
	Took, CPU            time.Duration
	Bytes, Allocs        uint64 // allocated by Go
	Peak                 uint64 // memory of the process in bytes
	Added                uint64 // part of Peak that came after the script and the sample were loaded
	VMs                  int    // at the end
	VMMemory             uint64 // bytes that they hold
	Waits                uint64 // for a VM
	WaitTime             time.Duration
	P50, P90, P99, Max   time.Duration // latency of a batch, including the wait for a VM
}

// A Measurement is a setup with its rounds.
type Measurement struct {
	Setup
	Summary Summary
	Rounds  []Reading
}

// A Spread is the median, the minimum and the maximum of the rounds.
type Spread struct{ Median, Min, Max float64 }

// A Summary holds the figures of all rounds of a measurement.
type Summary struct {
	Rate                Spread        // events per second
	P50, P90, P99       time.Duration // medians
	Max                 time.Duration // of all rounds
	CPU                 float64       // cores in use
	Peak, Added         uint64
	VMs                 int
	VMMemory            uint64
	BytesPerEvent       float64
	AllocationsPerEvent float64
	WaitPerRun          time.Duration // for a VM, on average
}

func (m *Measurement) summarize() {
	each := func(of func(Reading) float64) []float64 {
		var all []float64
		for _, r := range m.Rounds {
			all = append(all, of(r))
		}
		return all
	}
	duration := func(of func(Reading) time.Duration) time.Duration {
		return time.Duration(spread(each(func(r Reading) float64 { return float64(of(r)) })).Median)
	}
	s := &m.Summary
	s.Rate = spread(each(Reading.rate))
	s.P50 = duration(func(r Reading) time.Duration { return r.P50 })
	s.P90 = duration(func(r Reading) time.Duration { return r.P90 })
	s.P99 = duration(func(r Reading) time.Duration { return r.P99 })
	s.CPU = spread(each(func(r Reading) float64 { return float64(r.CPU) / float64(r.Took) })).Median
	s.BytesPerEvent = spread(each(func(r Reading) float64 { return r.perEvent(float64(r.Bytes)) })).Median
	s.AllocationsPerEvent = spread(each(func(r Reading) float64 { return r.perEvent(float64(r.Allocs)) })).Median
	s.WaitPerRun = duration(func(r Reading) time.Duration { return r.WaitTime / time.Duration(max(r.Runs, 1)) })
	for _, r := range m.Rounds {
		s.Max, s.VMs, s.VMMemory = max(s.Max, r.Max), max(s.VMs, r.VMs), max(s.VMMemory, r.VMMemory)
		s.Peak, s.Added = max(s.Peak, r.Peak), max(s.Added, r.Added)
	}
}

// rate is in events per second.
func (r Reading) rate() float64 { return float64(r.Events) / max(r.Took.Seconds(), 1e-9) }

func (r Reading) perEvent(total float64) float64 { return total / float64(max(r.Events, 1)) }

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// RelativeRange returns the difference of maximum and minimum, as a share of the median.
func (s Spread) RelativeRange() float64 { return (s.Max - s.Min) / max(s.Median, 1e-9) }
