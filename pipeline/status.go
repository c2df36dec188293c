package pipeline

import (
	"errors"
	"fmt"
	"sync"
)

// A State says what a pipeline is doing.
type State string

const (
	Starting State = "starting" // connecting
	Running  State = "running"  // every partition is open
	Retrying State = "retrying" // waiting for a source, sink or store that fails
	Paused   State = "paused"   // not reading until it is resumed
	Draining State = "draining" // delivering what was read
	Stopped  State = "stopped"
)

// States returns all states.
func States() []State { return []State{Starting, Running, Retrying, Paused, Draining, Stopped} }

// Ready returns nil if the pipeline is running, and otherwise what it is doing
// instead.
func (p *Pipeline) Ready() error {
	switch state, err := p.status.current(); {
	case state == Running:
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", state, err)
	default:
		return errors.New(string(state))
	}
}

// status holds what the state of a pipeline depends on. It is safe for concurrent
// use.
type status struct {
	mu       sync.Mutex
	listed   bool          // the source has listed its partitions
	opening  int           // partitions that are being opened
	failures map[any]error // by *retrier or *refusal
	paused   error         // the reason; nil if not paused
	draining bool
	stopped  bool
	err      error // of the run
}

func (s *status) current() (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return Stopped, s.err
	case s.draining:
		return Draining, s.anyFailure()
	case s.paused != nil:
		return Paused, s.paused
	case len(s.failures) > 0:
		return Retrying, s.anyFailure()
	case !s.listed || s.opening > 0:
		return Starting, nil
	}
	return Running, nil
}

func (s *status) anyFailure() error {
	for _, err := range s.failures {
		return err
	}
	return nil
}

func (s *status) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *status) setListed()             { s.update(func() { s.listed = true }) }
func (s *status) addOpening()            { s.update(func() { s.opening++ }) }
func (s *status) removeOpening()         { s.update(func() { s.opening-- }) }
func (s *status) setDraining()           { s.update(func() { s.draining = true }) }
func (s *status) setPaused(reason error) { s.update(func() { s.paused = reason }) }
func (s *status) setStopped(err error)   { s.update(func() { s.stopped, s.err = true, err }) }

func (s *status) addFailure(of any, err error) {
	s.update(func() {
		if s.failures == nil {
			s.failures = make(map[any]error)
		}
		s.failures[of] = err
	})
}

func (s *status) removeFailure(of any) { s.update(func() { delete(s.failures, of) }) }
