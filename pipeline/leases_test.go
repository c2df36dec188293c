package pipeline

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// leases are what a place keeps of who works.
type leases struct {
	mu     sync.Mutex
	held   map[string]lease // by partition
	living map[string]time.Time
}

type lease struct {
	worker string
	until  time.Time
}

func newLeases() *leases {
	return &leases{held: make(map[string]lease), living: make(map[string]time.Time)}
}

func (l *leases) AcquireLease(_ context.Context, partition, worker string, d time.Duration) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if held, ok := l.held[partition]; ok && held.worker != worker && held.until.After(now) {
		return held.worker, nil
	}
	l.held[partition] = lease{worker, now.Add(d)}
	return worker, nil
}

// give lets somebody hold a lease, whoever has it.
func (l *leases) give(partition, worker string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[partition] = lease{worker, time.Now().Add(d)}
}

func (l *leases) ReleaseLease(_ context.Context, partition, worker string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[partition].worker == worker {
		delete(l.held, partition)
	}
	return nil
}

func (l *leases) Heartbeat(_ context.Context, worker string, d time.Duration) (workers int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.living[worker] = now.Add(d)
	for _, until := range l.living {
		if until.After(now) {
			workers++
		}
	}
	return workers, nil
}

// A shared table is one that several workers share.
type sharedTable struct {
	*table
	*leases
}

func newSharedTable() *sharedTable { return &sharedTable{newTable(), newLeases()} }

func (s *sharedTable) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Leases: s, Positions: s}
}

func (s *sharedTable) Positions(context.Context) (map[string]event.Ranges, error) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.ranges, nil
}

func (s *sharedTable) SetPosition(_ context.Context, partition string, next uint64) error {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.epochs[partition]++
	before := event.Ranges{{Count: next}}
	if next == 0 {
		before = nil
	}
	set := s.ranges[partition].Intersect(before)
	for _, r := range before {
		set.Add(r)
	}
	s.ranges[partition] = set
	return nil
}

// TestDouble holds the double to what the real kinds promise.
func TestDouble(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Place {
		pipelines := make(map[string]*sharedTable)
		var mu sync.Mutex
		return sinktest.Place{
			Guarantee: sink.ExactlyOnce,
			NoVerify:  true,
			Sink: func(_ *testing.T, pipeline string) sink.Sink {
				mu.Lock()
				defer mu.Unlock()
				if pipelines[pipeline] == nil {
					pipelines[pipeline] = newSharedTable()
				}
				return pipelines[pipeline]
			},
			Rows: func(t *testing.T) (rows []sinktest.Row) {
				for _, s := range pipelines {
					for _, doc := range s.all() {
						var row sinktest.Row
						if err := json.Unmarshal([]byte(doc), &row); err != nil {
							t.Fatal(err)
						}
						rows = append(rows, row)
					}
				}
				return rows
			},
		}
	})
}
