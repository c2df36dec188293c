// Package chaos injects faults into a running pipeline and checks that each event was
// delivered exactly once. It is the engine of perigee verify.
//
// A round runs one pipeline in a testbed: private servers, one to three worker processes,
// a proxy on each connection and a producer of numbered events. While events flow, the
// round kills, suspends, disconnects and restores everything in it. Then it reads every
// sink and dead-letter store back and compares each event with what the script alone
// makes of it; it does not trust the engine's counters. Events that Redis loses when it is
// restored from a snapshot may have been delivered before, once, or not at all.
//
// The seed determines the faults of a round, their order and their targets, but not what
// the processes are doing at that moment.
//
// Package audit checks one run without faults; this package checks runs with them.
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

// Config configures a Runner.
type Config struct {
	Binary    string // path of perigee
	Folder    string // parent of the rounds' folders with servers, workers and logs
	Events    *Events
	Expect    ExpectFunc
	ReadStore ReadStoreFunc     // nil where there is no event store
	ReadState ReadStateFunc     // for rounds of pipelines with a state
	Keep      bool              // keep the folders of rounds that succeed
	Log       func(line string) // receives a line at the end of each round
}

// An ExpectFunc runs the script of the pipeline in a configuration file over events,
// without an engine, and returns what each event must become.
type ExpectFunc func(ctx context.Context, config string, events [][]byte) ([]Expected, error)

// An Expected is what one event must become.
type Expected struct {
	Rows []uint8 // rows in each sink, including dead letters of that sink
	Dead bool    // the whole event is a dead letter
}

// A ReadStoreFunc calls each with the id of every row in a table of the event store in a data folder.
type ReadStoreFunc func(ctx context.Context, data, table, column string, each func(id uint64)) error

// A ReadStateFunc calls each with the number of every event that the state of the pipeline in a
// configuration file remembers, and how often; see Pipeline.WithState. No worker runs.
type ReadStateFunc func(ctx context.Context, config string, each func(id uint64, times int)) error

// A Round runs one pipeline through a schedule of faults.
type Round struct {
	Name     string
	Pipeline *Pipeline
	Workers  int
	Faults   []Fault
	Seed     uint64
	Fix      *ScriptFix // nil: the script stays as it is
}

// A Runner runs rounds one after another. Progress may be called concurrently.
type Runner struct {
	config  Config
	round   atomic.Pointer[string]
	kills   atomic.Int64
	planned int64
	Totals  Totals
}

// NewRunner returns a runner that reports its progress relative to rounds.
func NewRunner(config Config, rounds []Round) *Runner {
	r := &Runner{config: config, Totals: newTotals()}
	for _, round := range rounds {
		for _, fault := range round.Faults {
			r.planned += fault.Kind.killCount()
		}
	}
	return r
}

// Progress returns the current round and how many kills are done and planned.
func (r *Runner) Progress() (round string, kills, planned int64) {
	if name := r.round.Load(); name != nil {
		round = *name
	}
	return round, r.kills.Load(), r.planned
}

// Run runs the rounds and adds their results to Totals. It stops at the first round that
// lost or duplicated an event and leaves that round's folder in place.
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

// Totals adds up the faults and results of all rounds.
type Totals struct {
	Events, Forgotten, Rows, Dead uint64
	Lost, Duplicated              uint64
	Kills                         int64
	Faults                        map[string]int // by kind and target
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

// FaultNames returns the names of the injected faults, sorted.
func (t *Totals) FaultNames() []string {
	var names []string
	for name := range t.Faults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TakeoverTimes returns the shortest, median and longest time that other workers needed
// to take over the partitions of a killed or suspended worker.
func (t *Totals) TakeoverTimes() (least, median, most time.Duration) {
	if len(t.Takeovers) == 0 {
		return 0, 0, 0
	}
	sorted := slices.SortedFunc(slices.Values(t.Takeovers), cmp.Compare[time.Duration])
	return sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
}
