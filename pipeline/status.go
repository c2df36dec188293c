package pipeline

import "sync"

// A State is what a pipeline is doing.
type State string

const (
	Starting State = "starting" // connecting
	Running  State = "running"  // every partition is open
	Retrying State = "retrying" // waiting for the source or a sink to come back
	Paused   State = "paused"   // reading nothing until it is resumed
	Draining State = "draining" // finishing what was read
	Stopped  State = "stopped"
)

// States lists the states there are.
func States() []State { return []State{Starting, Running, Retrying, Paused, Draining, Stopped} }

// status is from what the state of a pipeline follows. It is safe for
// concurrent use.
type status struct {
	mu       sync.Mutex
	started  bool // the partitions are known
	unopened int  // partitions that are being opened
	troubles map[*trouble]error
	paused   error // why; nil when it is not
	draining bool
	stopped  bool
	err      error // why it stopped
}

func (s *status) now() (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return Stopped, s.err
	case s.draining:
		return Draining, s.trouble()
	case s.paused != nil:
		return Paused, s.paused
	case len(s.troubles) > 0:
		return Retrying, s.trouble()
	case !s.started || s.unopened > 0:
		return Starting, nil
	}
	return Running, nil
}

// trouble returns the error of one of the troubles, if there are any.
func (s *status) trouble() error {
	for _, err := range s.troubles {
		return err
	}
	return nil
}

func (s *status) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *status) hired()   { s.change(func() { s.started = true }) }
func (s *status) opening() { s.change(func() { s.unopened++ }) }
func (s *status) opened()  { s.change(func() { s.unopened-- }) }
func (s *status) drain()   { s.change(func() { s.draining = true }) }

// pause says why the pipeline is paused; nil that it is not.
func (s *status) pause(why error) { s.change(func() { s.paused = why }) }

func (s *status) stop(err error) { s.change(func() { s.stopped, s.err = true, err }) }

func (s *status) failed(t *trouble, err error) {
	s.change(func() {
		if s.troubles == nil {
			s.troubles = make(map[*trouble]error)
		}
		s.troubles[t] = err
	})
}

func (s *status) recovered(t *trouble) { s.change(func() { delete(s.troubles, t) }) }
