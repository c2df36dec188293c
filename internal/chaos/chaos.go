// Package chaos runs a pipeline on private servers, kills, freezes, cuts off and
// sets back everything in the chain while events flow, and then looks for every
// event in every sink.
//
// Events are numbered from 1. What must come of one is what the script makes of
// it alone; the counters of the engine are not believed. What a Redis forgets
// when it is set back may have landed before, once, and need not have.
//
// The faults of a round, their order and their places follow from the seed. What
// the processes are doing at that moment does not.
package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// Config is what is put through what.
type Config struct {
	Binary    string // of perigee
	Folder    string // for servers, workers and logs
	Events    *Events
	Expect    ExpectFunc
	ReadStore ReadStoreFunc     // nil where there is no event store
	Keep      bool              // the folders of rounds that end well, too
	Log       func(line string) // is told how it goes
}

// An ExpectFunc runs the script of the pipeline in a configuration over events, with
// no engine, and tells what must come of each.
type ExpectFunc func(ctx context.Context, config string, events [][]byte) ([]Expected, error)

// An Expected is what must come of one event.
type Expected struct {
	Rows []uint8 // in each sink, dead letters of that sink among them
	Dead bool    // it fails as a whole
}

// ReadStoreFunc calls each with the id of every row in a table of the event store of a data folder.
type ReadStoreFunc func(ctx context.Context, data, table, column string, each func(id uint64)) error

// A Round is one pipeline that is put through faults.
type Round struct {
	Name     string
	Pipeline *Pipeline
	Workers  int
	Faults   []Fault
	Seed     uint64
	Fix      *ScriptFix // nil: the script stays as it is
}

// A Runner runs rounds one after another. Progress may be asked at any time.
type Runner struct {
	config  Config
	round   atomic.Pointer[string]
	kills   atomic.Int64
	planned int64
	Totals  Totals
}

// NewRunner makes a runner for rounds that will be run.
func NewRunner(config Config, rounds []Round) *Runner {
	r := &Runner{config: config, Totals: newTotals()}
	for _, round := range rounds {
		for _, fault := range round.Faults {
			r.planned += fault.Kind.killCount()
		}
	}
	return r
}

// Progress says which round it is in, and how many kills were done and planned.
func (r *Runner) Progress() (round string, kills, planned int64) {
	if name := r.round.Load(); name != nil {
		round = *name
	}
	return round, r.kills.Load(), r.planned
}

// Run runs the rounds and adds up what was found. It ends at the first round with
// an event lost or doubled: what is in the folder then tells why.
func (r *Runner) Run(ctx context.Context, rounds []Round) error {
	for i, round := range rounds {
		r.round.Store(&round.Name)
		folder := filepath.Join(r.config.Folder, fmt.Sprintf("%02d", i+1))
		if err := r.runRound(ctx, folder, round); err != nil {
			return fmt.Errorf("round %d, %s: %w", i+1, round.Name, err)
		}
	}
	return nil
}

func (r *Runner) runRound(ctx context.Context, folder string, round Round) error {
	began := time.Now()
	s, err := newTestbed(ctx, r, folder, round)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.runFaults(ctx); err != nil {
		return err
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	report, err := s.auditSinks(ctx)
	if err == nil && round.Fix != nil && report.Err() == nil {
		report, err = s.retryWithFixedScript(ctx)
	}
	if err != nil {
		return err
	}
	r.Totals.add(&report)
	r.config.Log(fmt.Sprintf("%s: %v (%.0f s)", round.Name, report, time.Since(began).Seconds()))
	if err := report.Err(); err != nil {
		return err
	}
	s.close()
	if r.config.Keep {
		return nil
	}
	return os.RemoveAll(folder)
}

// A Totals is what all rounds together have done and found.
type Totals struct {
	Events, Forgotten, Rows, Dead uint64
	Lost, Duplicated              uint64
	Kills                         int64
	Faults                        map[string]int // by what was done, and where
	Takeovers                     []time.Duration
}

func newTotals() Totals { return Totals{Faults: make(map[string]int)} }

func (t *Totals) add(r *Report) {
	t.Events += r.Events
	t.Forgotten += r.Forgotten
	t.Rows += r.Rows
	t.Dead += r.Dead
	t.Lost += r.Lost
	t.Duplicated += r.Duplicated
}

// FaultNames are those of the faults that were done, in order.
func (t *Totals) FaultNames() []string {
	var names []string
	for name := range t.Faults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TakeoverTimes returns the shortest, median and longest time in which the partitions
// of a dead or frozen worker were with others.
func (t *Totals) TakeoverTimes() (least, median, most time.Duration) {
	if len(t.Takeovers) == 0 {
		return 0, 0, 0
	}
	sorted := slices.SortedFunc(slices.Values(t.Takeovers), cmp.Compare[time.Duration])
	return sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
}
