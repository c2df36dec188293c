package tuning

import (
	"slices"
	"time"

	"github.com/perigeedb/perigee/script/pool"
)

// A Plan says what to measure.
type Plan struct {
	Goroutines []int // for each pool
	Cores      []int // for the adaptive pool; all other setups use the last number
	Batch      int   // events in a batch
	Batches    []int // batch sizes for the adaptive pool
	Rounds     int   // at most
	Many       bool  // measure all pool strategies, not only the sensible ones
}

// QuickPlan returns a plan of a few setups for a machine with so many cores.
func QuickPlan(cores int) Plan {
	return Plan{
		Goroutines: distinct(1, 4*cores, 16*cores), Cores: distinct(1, cores), Batch: 100,
		Batches: []int{1, 100, 1000}, Rounds: 3,
	}
}

// FullPlan returns a plan of many setups for a machine with so many cores.
func FullPlan(cores int) Plan {
	p := Plan{
		Goroutines: distinct(1, cores, 4*cores, 16*cores, 64*cores), Batch: 100,
		Batches: []int{1, 10, 100, 1000}, Rounds: 5, Many: true,
	}
	for n := 1; n < cores; n *= 2 {
		p.Cores = append(p.Cores, n)
	}
	p.Cores = append(p.Cores, cores)
	return p
}

func distinct(numbers ...int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// cores returns the number of cores that the pools use.
func (p Plan) cores() int { return p.Cores[len(p.Cores)-1] }

// batchTime is the longest that a batch should take, so that a round holds many.
const batchTime = 20 * time.Millisecond

// limitBatches makes batches smaller where an event takes long.
func (p *Plan) limitBatches(perEvent time.Duration) {
	maxBatch := max(int(batchTime/max(perEvent, 1)), 1)
	p.Batch = min(p.Batch, maxBatch)
	fits := slices.DeleteFunc(slices.Clone(p.Batches), func(n int) bool { return n > maxBatch })
	p.Batches = distinct(append(fits, p.Batch)...)
}

// typicalGoroutines returns the number of goroutines for setups that vary something else:
// enough to keep the cores busy.
func (p Plan) typicalGoroutines() int { return p.Goroutines[len(p.Goroutines)/2] }

// pools returns the pools to compare, the adaptive one first.
func (p Plan) pools() []pool.Settings {
	n := p.cores()
	all := []pool.Settings{{}, {Core: n, Max: n}, {Core: 4 * n, Max: 4 * n}, {Core: n, Max: 4 * n, Eager: true}}
	perCall := pool.Settings{Core: -1, Max: -1, Eager: true, Idle: -1}
	if !p.Many {
		return append(all, perCall)
	}
	return append(all, pool.Settings{Core: 16 * n, Max: 16 * n}, pool.Settings{Core: n, Max: -1, Eager: true},
		pool.Settings{Core: -1, Max: -1, Eager: true}, perCall)
}

// columns returns the groups of setups that take turns: one for each number of goroutines,
// then one for the numbers of cores and one for the batch sizes.
func (p Plan) columns() (all [][]Setup) {
	for _, goroutines := range p.Goroutines {
		var column []Setup
		for _, s := range p.pools() {
			column = append(column, Setup{Pool: s.String(), Settings: s, Goroutines: goroutines, Cores: p.cores(), Batch: p.Batch})
		}
		all = append(all, column)
	}
	adaptive := Setup{Pool: pool.Settings{}.String(), Goroutines: p.typicalGoroutines(), Cores: p.cores(), Batch: p.Batch}
	var cores, batches []Setup
	for _, n := range p.Cores {
		one := adaptive
		one.Cores = n
		cores = append(cores, one)
	}
	for _, n := range p.Batches {
		one := adaptive
		one.Batch = n
		batches = append(batches, one)
	}
	return append(all, cores, batches)
}
