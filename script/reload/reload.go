// Package reload replaces scripts at run time. When its origins have changed, a Script
// loads the new version beside the old one, tries it on events that the old one
// processed, and replaces the old one between two batches. A version that does not
// load, or fails on all of these events, is refused, and the old one stays.
//
// One version runs each batch, and its dead letters name it. A replaced version is
// closed after its last call. All types are safe for concurrent use.
package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
)

// Config configures a Script.
type Config struct {
	Loader  *loader.Loader
	Origins []loader.Origin
	// Load loads a script from the code of the origins, in their order. A trial must
	// have no side effects, such as log lines.
	Load  func(ctx context.Context, codes []script.Code, trial bool) (script.Script, error)
	Sinks int // how many the script is loaded for
	Log   *slog.Logger
	// Replaced is called after each replacement of the script. It may be nil.
	Replaced func()
}

// A Script is a script.Script that can be replaced.
type Script struct {
	config Config
	sample sample

	checking   sync.Mutex // one check at a time
	loaded     *snapshot  // that was loaded or refused last
	readFailed bool       // the last check could not read the origins

	mu      sync.Mutex // guards what is below
	current *version
	counts  Counts
}

// A version is a loaded script with the number of calls that use it.
type version struct {
	script.Script
	snapshot *snapshot
	users    int
}

// Counts count the results of checks.
type Counts struct {
	Replaced   uint64 // a new version runs
	Refused    uint64 // a new version does not load or does not run
	Unreadable uint64 // an origin could not be read
}

// New loads the first version. Its error is that of Config.Load, or a *ReadError.
func New(ctx context.Context, c Config) (*Script, error) {
	s := &Script{config: c}
	state, err := readOrigins(ctx, c.Loader, c.Origins)
	if err != nil {
		return nil, err
	}
	loaded, err := c.Load(ctx, state.recordingCode(), false)
	if err != nil {
		return nil, err
	}
	s.loaded, s.current = state, &version{Script: loaded, snapshot: state}
	return s, nil
}

// Run implements script.Script.
func (s *Script) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	v := s.acquireCurrent()
	defer s.release(v)
	err := v.Run(ctx, in, res)
	s.sample.update(in, res)
	return err
}

// FinishRows implements script.RowScript, if the current version does.
func (s *Script) FinishRows(ctx context.Context, in *event.Batch, rows *event.Output, res *event.Result) error {
	v := s.acquireCurrent()
	defer s.release(v)
	current, ok := v.Script.(script.RowScript)
	if !ok {
		res.Reset()
		return fmt.Errorf("script %s cannot go on from rows that it returned earlier: %w", v, errors.ErrUnsupported)
	}
	return current.FinishRows(ctx, in, rows, res)
}

// String returns the name of the current version.
func (s *Script) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.String()
}

// Code returns the code of the first origin in the current version, and the files that it has
// required so far, by path.
func (s *Script) Code() (code script.Code, required map[string][]byte) {
	first := s.currentSnapshot().parts[0]
	first.mu.Lock()
	defer first.mu.Unlock()
	return first.code, maps.Clone(first.required)
}

// Close closes the current version. Call it after all other calls have returned.
func (s *Script) Close() error {
	s.checking.Lock()
	defer s.checking.Unlock()
	return s.current.Close()
}

// Counts returns the current counts.
func (s *Script) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Script) acquireCurrent() *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.users++
	return s.current
}

// release ends a call. It closes a replaced version after its last call.
func (s *Script) release(v *version) {
	s.mu.Lock()
	v.users--
	over := v != s.current && v.users == 0
	s.mu.Unlock()
	if over {
		s.closeVersion(v)
	}
}

func (s *Script) closeVersion(v *version) {
	if err := v.Close(); err != nil {
		s.config.Log.Warn("cannot close replaced script", "script", v.String(), "error", err)
	}
}

// Check replaces the current version if the origins have changed, and logs the result.
// With remote false it skips other hosts. It reports whether it has replaced the
// version.
func (s *Script) Check(ctx context.Context, remote bool) (replaced bool) {
	s.checking.Lock()
	defer s.checking.Unlock()
	next, err := s.loaded.reread(ctx, s.config.Loader, remote)
	if err != nil {
		s.reportUnreadable(ctx, err)
		return false
	}
	s.readFailed = false
	if next == nil {
		return false
	}
	s.loaded = next
	if err := s.replace(ctx, next, true); err != nil {
		s.updateCounts(func(c *Counts) { c.Refused++ })
		s.config.Log.Error("refused new version of script; the old one stays", "script", s.String(), "error", err)
		return false
	}
	return true
}

// Adopt replaces the current version by the code of the first origin that another script runs, with the
// files that it has required. From then on s follows the origin of that code. Unless untried is true, it
// refuses a version that fails on all of the events on which Check would try it.
func (s *Script) Adopt(ctx context.Context, from *Script, untried bool) error {
	s.checking.Lock()
	defer s.checking.Unlock()
	next := &snapshot{parts: slices.Clone(s.currentSnapshot().parts)}
	next.parts[0] = from.currentSnapshot().parts[0]
	if err := s.replace(ctx, next, !untried); err != nil {
		return err
	}
	s.loaded = next
	return nil
}

func (s *Script) currentSnapshot() *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.snapshot
}

// reportUnreadable counts a failure to read the origins, and logs the first in a row.
func (s *Script) reportUnreadable(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.updateCounts(func(c *Counts) { c.Unreadable++ })
	if !s.readFailed {
		s.config.Log.Warn("cannot check for a new version of the script; the old one stays", "script", s.String(), "error", err)
	}
	s.readFailed = true
}

// files returns the local files of the version that was loaded or refused last.
func (s *Script) files() []string {
	s.checking.Lock()
	defer s.checking.Unlock()
	return s.loaded.files()
}

func (s *Script) updateCounts(change func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counts)
}

// replace makes a new version the current one, after a trial if that is asked for.
func (s *Script) replace(ctx context.Context, next *snapshot, try bool) error {
	if try {
		if err := s.tryVersion(ctx, next); err != nil {
			return err
		}
	}
	loaded, err := s.config.Load(ctx, next.recordingCode(), false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.current
	s.current = &version{Script: loaded, snapshot: next}
	s.counts.Replaced++
	idle := old.users == 0
	s.mu.Unlock()
	s.config.Log.Info("script replaced", "script", loaded.String(), "before", old.String())
	if idle {
		s.closeVersion(old)
	}
	if s.config.Replaced != nil {
		s.config.Replaced()
	}
	return nil
}

// tryVersion loads a version without side effects and runs it on the sample.
func (s *Script) tryVersion(ctx context.Context, next *snapshot) (err error) {
	trial, err := s.config.Load(ctx, next.recordingCode(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trial.Close()) }()
	batch := s.sample.copyBatch()
	if batch.Len() == 0 {
		return nil
	}
	res := event.Result{Outputs: make([]event.Output, s.config.Sinks)}
	if err := trial.Run(ctx, batch, &res); err != nil {
		return fmt.Errorf("try it on %d recent events: %w", batch.Len(), err)
	}
	switch dead := len(res.Dead); {
	case allDead(batch.Len(), res.Dead):
		return fmt.Errorf("it fails on all of %d recent events that the old version processed: %s", batch.Len(), res.Dead[0].Error)
	case dead > 0:
		s.config.Log.Warn("new version of script fails on some recent events that the old one processed",
			"script", trial.String(), "failed", dead, "of", batch.Len(), "error", res.Dead[0].Error)
	}
	return nil
}

// allDead reports whether each of n events has a dead letter.
func allDead(n int, dead []event.DeadLetter) bool {
	positions := map[uint64]bool{}
	for i := range dead {
		positions[dead[i].Position] = true
	}
	return len(positions) == n
}
