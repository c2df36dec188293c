package pipeline

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/perigeedb/perigee/event"
)

// counters are what Stats reads while lanes write.
type counters struct {
	read, bytes, batches atomic.Uint64
	settled, dropped     atomic.Uint64
	script               atomic.Int64 // nanoseconds
	sinks                []sinkCounters
	dead                 stages
	lags                 lags
}

type sinkCounters struct {
	rows atomic.Uint64
	time atomic.Int64 // nanoseconds
}

// stages counts dead letters by stage.
type stages struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (s *stages) add(dead []event.Dead) {
	if len(dead) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = make(map[string]uint64)
	}
	for i := range dead {
		s.n[dead[i].Stage]++
	}
}

func (s *stages) counts() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}

// lags holds the lag of each partition at work, as of its last read: a reader
// need not answer while it reads.
type lags struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (l *lags) set(partition string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = make(map[string]uint64)
	}
	l.n[partition] = n
}

func (l *lags) forget(partition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.n, partition)
}

func (l *lags) sum() (sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.n {
		sum += n
	}
	return sum
}
