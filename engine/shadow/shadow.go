// Package shadow runs a new version of a script beside the one that a pipeline runs, on a sample of the
// live events, and reports how the results differ. Nothing that the new version returns leaves the
// package.
//
// A pipeline runs the script that Tap returns. After each run of the live version, the tap copies the
// sampled events with their results and hands them to one worker, which runs the new version and
// compares. The tap never waits: while the worker is busy, it skips events. After each piece of work the
// worker rests for as long, so that a shadow costs at most half a core, however slow the new version is.
//
// A shadow stops itself when most of the events of many samples fail. It starts again, with an empty
// report, when its code changes or on Reset.
//
// A Shadow is safe for concurrent use.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/reload"
)

// Config configures a Shadow.
type Config struct {
	Name   string  // of the code of the new version, as its errors quote it
	Sample float64 // share of the events, above 0 and up to 1
	Sinks  []compare.Sink
	// Load loads the new version for these sinks. Its code reads the clock now, and replaced is called when
	// it has replaced itself.
	Load func(ctx context.Context, now func() time.Time, replaced func()) (*reload.Script, error)
	// Live is the version that the pipeline runs, and LiveName the name of its code.
	Live     *reload.Script
	LiveName string
	// Memory returns the bytes of the VMs of the new version.
	Memory func() int
	// Check is the interval between checks for new code, as reload.NewWatcher has it.
	Check time.Duration
	Log   *slog.Logger
}

// A Shadow is a new version of a script that runs on a sample of a pipeline's events.
type Shadow struct {
	config Config
	cancel context.CancelFunc // nil before Start
	ended  sync.WaitGroup     // the goroutines of Start
	check  chan struct{}      // asks for a check of the code
	free   chan *sample
	filled chan *sample
	clock  atomic.Pointer[time.Time] // that the new version reads
	counts counts
	wanted atomic.Uint64 // generation of the samples that are wanted; 0 while the shadow does not run

	changing sync.Mutex // held while the new version loads first, is promoted, or is closed

	mu         sync.Mutex // guards what is below
	script     *reload.Script
	state      admin.ShadowState
	reason     string // why it is not running
	since      time.Time
	failures   int // see judge
	comparison *compare.Comparison
	generation uint64 // of comparison
	skipped    uint64 // events of generation
	closed     bool
}

// counts count since New.
type counts struct {
	same, different, skipped atomic.Uint64
	time                     atomic.Int64 // nanoseconds in the new version
}

// New loads the new version. The Shadow is valid even after an error, which is that of Config.Load: it tries
// again when its code may have changed. Close it.
func New(ctx context.Context, c Config) (*Shadow, error) {
	s := &Shadow{config: c, check: make(chan struct{}, 1), free: make(chan *sample, samplesMax), filled: make(chan *sample, samplesMax)}
	for range samplesMax {
		s.free <- &sample{}
	}
	return s, s.load(ctx)
}

// Start starts the worker.
func (s *Shadow) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	s.logState()
	s.ended.Go(func() { s.work(ctx) })
	s.ended.Go(func() { s.watch(ctx) })
}

// Close stops the shadow and closes the new version. Its status and its report stay.
func (s *Shadow) Close() error {
	s.mu.Lock()
	cancel, closed := s.cancel, s.closed
	s.closed = true
	s.mu.Unlock()
	s.wanted.Store(0)
	if closed {
		return nil
	}
	if cancel != nil {
		cancel()
	}
	s.ended.Wait()
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.script == nil {
		return nil
	}
	return s.script.Close()
}

var errClosed = errors.New("the pipeline is stopping")

// load loads the new version unless it is loaded.
func (s *Shadow) load(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	loaded, closed := s.script != nil, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case loaded:
		return nil
	}
	script, err := s.config.Load(ctx, s.now, s.restart)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.setState(admin.ShadowFailed, err.Error())
		return err
	}
	s.script = script
	s.begin()
	return nil
}

// watch checks the code for new versions, and tries again to load one that did not load.
func (s *Shadow) watch(ctx context.Context) {
	again := time.NewTicker(max(s.config.Check, time.Second))
	defer again.Stop()
	if s.config.Check == 0 {
		again.Stop() // only on request
	}
	for s.loaded() == nil {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-s.check:
		}
		_, before := s.current()
		if err := s.load(ctx); err == nil || err.Error() != before {
			s.logState()
		}
	}
	w := reload.NewWatcher([]*reload.Script{s.loaded()}, s.config.Check)
	s.ended.Go(func() { w.Run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.check:
			w.Ask()
		}
	}
}

// Check asks for a check of the code now.
func (s *Shadow) Check() {
	select {
	case s.check <- struct{}{}:
	default: // it will
	}
}

func (s *Shadow) loaded() *reload.Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script
}

func (s *Shadow) now() time.Time {
	if at := s.clock.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// restart begins a new report after a change of the code.
func (s *Shadow) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script != nil && s.state != admin.ShadowPromoted && !s.closed {
		s.begin()
	}
}

// LiveReplaced begins a new report if the shadow runs, because another live version runs.
func (s *Shadow) LiveReplaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == admin.ShadowRunning && !s.closed {
		s.begin()
	}
}

// Reset begins a new report, and starts a shadow that has stopped or did not load.
func (s *Shadow) Reset(ctx context.Context) error {
	if state, _ := s.current(); state == admin.ShadowPromoted {
		return errPromoted
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	s.restart()
	s.config.Log.Info("shadow reset")
	return nil
}

// begin begins a new report. The caller holds mu.
func (s *Shadow) begin() {
	s.failures, s.skipped = 0, 0
	s.generation++
	s.setState(admin.ShadowRunning, "")
	s.comparison = compare.New(
		compare.Side{Name: s.config.Live.String(), Script: s.config.LiveName},
		compare.Side{Name: s.script.String(), Script: s.config.Name}, s.config.Sinks)
}

// setState sets the state. The caller holds mu.
func (s *Shadow) setState(state admin.ShadowState, reason string) {
	s.state, s.reason, s.since = state, reason, time.Now().UTC().Truncate(time.Second)
	if state == admin.ShadowRunning {
		s.wanted.Store(s.generation)
	} else {
		s.wanted.Store(0)
	}
}

// current returns the state and its reason.
func (s *Shadow) current() (admin.ShadowState, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.reason
}

// stop ends sampling until the code changes or Reset is called.
func (s *Shadow) stop(reason string) {
	s.mu.Lock()
	s.setState(admin.ShadowStopped, reason)
	s.mu.Unlock()
	s.logState()
}

// logState logs what became of the shadow.
func (s *Shadow) logState() {
	switch state, reason := s.current(); state {
	case admin.ShadowRunning:
		s.config.Log.Info("shadow started", "script", s.config.Name, "sample", s.config.Sample)
	case admin.ShadowFailed:
		s.config.Log.Error("shadow does not load; the pipeline runs without it", "script", s.config.Name, "error", reason)
	case admin.ShadowStopped:
		s.config.Log.Warn("shadow stopped; the pipeline runs without it", "script", s.config.Name, "reason", reason)
	}
}

// Promote makes the new version the live one between two batches, and ends the shadow. Without force, a
// shadow that does not run is refused, and a version that fails on all of a few recent events.
func (s *Shadow) Promote(ctx context.Context, force bool) error {
	if err := s.promote(ctx, force); err != nil {
		return err
	}
	return s.Close()
}

func (s *Shadow) promote(ctx context.Context, force bool) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	state, reason, script, closed := s.state, s.reason, s.script, s.closed
	s.mu.Unlock()
	switch {
	case state == admin.ShadowPromoted:
		return errPromoted
	case closed:
		return errClosed
	case script == nil:
		return fmt.Errorf("the shadow does not load: %s", reason)
	case state != admin.ShadowRunning && !force:
		return event.WithHint(fmt.Errorf("the shadow has stopped: %s", reason), hintOfForce)
	}
	s.mu.Lock()
	s.setState(admin.ShadowPromoted, "")
	s.mu.Unlock()
	if err := s.config.Live.Adopt(ctx, script, force); err != nil {
		s.mu.Lock()
		s.setState(state, reason)
		s.mu.Unlock()
		return event.WithHint(err, hintOfForce)
	}
	s.config.Log.Info("shadow promoted: it is the script of the pipeline now", "script", script.String())
	return nil
}

var errPromoted = errors.New("the shadow is promoted: it is the script of the pipeline")

const hintOfForce = "add --force to promote it nevertheless"

// Status returns the state of the shadow and the figures of its report.
func (s *Shadow) Status() admin.ShadowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := admin.ShadowStatus{
		Script: s.config.Name, Sample: s.config.Sample, State: s.state, Reason: s.reason, Since: s.since, Skipped: s.skipped,
	}
	if s.comparison != nil {
		status.Events, status.Different = s.comparison.Events(), s.comparison.Different()
	}
	return status
}

// Report returns the differences since the report began, or nil if the new version has never run.
func (s *Shadow) Report() *compare.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.comparison == nil {
		return nil
	}
	return s.comparison.Result()
}

// Counts are counts since the start of the pipeline.
type Counts struct {
	Same, Different uint64        // events whose results were compared
	Skipped         uint64        // sampled events that were not compared
	Time            time.Duration // in the new version
	Running         bool
}

// Counts returns the counts.
func (s *Shadow) Counts() Counts {
	state, _ := s.current()
	return Counts{
		Same: s.counts.same.Load(), Different: s.counts.different.Load(), Skipped: s.counts.skipped.Load(),
		Time: time.Duration(s.counts.time.Load()), Running: state == admin.ShadowRunning,
	}
}
