package pipeline

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// memoryLeases is a store of leases in memory.
type memoryLeases struct {
	mu     sync.Mutex
	held   map[string]memoryLease // by partition
	living map[string]time.Time
}

type memoryLease struct {
	worker string
	until  time.Time
}

func newMemoryLeases() *memoryLeases {
	return &memoryLeases{held: make(map[string]memoryLease), living: make(map[string]time.Time)}
}

func (l *memoryLeases) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) (holders []string, err error) {
	if ctx.Err() != nil {
		return make([]string, len(partitions)), ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, partition := range partitions {
		if held, ok := l.held[partition]; !ok || held.worker == worker || !held.until.After(now) {
			l.held[partition] = memoryLease{worker, now.Add(d)}
		}
		holders = append(holders, l.held[partition].worker)
	}
	return holders, nil
}

// give moves a lease to a worker.
func (l *memoryLeases) give(partition, worker string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[partition] = memoryLease{worker, time.Now().Add(d)}
}

func (l *memoryLeases) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, partition := range partitions {
		if l.held[partition].worker == worker {
			delete(l.held, partition)
		}
	}
	return nil
}

func (l *memoryLeases) Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
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

// names returns the leases that were not released.
func (l *memoryLeases) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.held))
}

// A sharedSink is a sink that several workers share.
type sharedSink struct {
	*memorySink
	*memoryLeases
}

func newSharedSink() *sharedSink { return &sharedSink{newMemorySink(), newMemoryLeases()} }

func (s *sharedSink) Traits() sink.Traits {
	return sink.Traits{Order: sink.AnyOrder, Leases: s, Positions: s}
}

func (s *sharedSink) Positions(context.Context) (map[string]event.Ranges, error) {
	s.memorySink.mu.Lock()
	defer s.memorySink.mu.Unlock()
	return s.ranges, nil
}

func (s *sharedSink) SetPosition(_ context.Context, partition string, next uint64) error {
	s.memorySink.mu.Lock()
	defer s.memorySink.mu.Unlock()
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

// TestDouble runs the suite of sinks on the double.
func TestDouble(t *testing.T) {
	sinktest.Run(t, func(*testing.T) sinktest.Place {
		pipelines := make(map[string]*sharedSink)
		var mu sync.Mutex
		return sinktest.Place{
			Guarantee: sink.ExactlyOnce,
			NoVerify:  true,
			Sink: func(_ *testing.T, pipeline string) sink.Sink {
				mu.Lock()
				defer mu.Unlock()
				if pipelines[pipeline] == nil {
					pipelines[pipeline] = newSharedSink()
				}
				return pipelines[pipeline]
			},
			Rows: func(t *testing.T) (rows []sinktest.Row) {
				for _, s := range pipelines {
					for _, doc := range s.allRows() {
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
