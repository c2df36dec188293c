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
	replayed             atomic.Uint64
	open                 atomic.Int64
	script, waited       atomic.Int64 // nanoseconds
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

// lags holds how far each partition at work is behind.
type lags struct {
	mu sync.Mutex
	of map[string]*lag
}

type lag struct {
	source  uint64   // as of the last read: a reader need not answer while it reads
	read    uint64   // since the partition was opened
	durable []uint64 // of what was read, by sink
}

func (l *lags) open(partition string, sinks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string]*lag)
	}
	l.of[partition] = &lag{durable: make([]uint64, sinks)}
}

func (l *lags) change(partition string, f func(*lag)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.of[partition]; one != nil {
		f(one)
	}
}

func (l *lags) forget(partition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, partition)
}

// sum returns how many events wait in the source, and how many are not durable
// in each sink: those, and what was read and is on its way.
func (l *lags) sum(sinks int) (source uint64, sink []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sink = make([]uint64, sinks)
	for _, one := range l.of {
		source += one.source
		for i := range sink {
			sink[i] += one.source + one.read - one.durable[i]
		}
	}
	return source, sink
}
