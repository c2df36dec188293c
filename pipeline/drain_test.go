package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newEndlessSource returns a source that is never exhausted.
func newEndlessSource(s *memoryPartition) *memorySource {
	q := newMemorySource(s)
	more := newMemoryPartition(s.name, 100_000).docs
	s.docs = more
	q.onRead = func(ctx context.Context) error { sleep(ctx, time.Millisecond); return ctx.Err() }
	return q
}

func TestDrainDeliversWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partition, to := newMemoryPartition("a", 0), newMemorySink()
		to.beforeCommit = func(ctx context.Context) error { sleep(ctx, 10*time.Millisecond); return ctx.Err() }
		r := newHarness(t, newEndlessSource(partition), testScript{main: passThrough}, to)
		ended := r.start(t.Context())
		time.Sleep(time.Second)
		if err := r.Ready(); err != nil {
			t.Errorf("not ready for %v", err)
		}
		r.Drain()
		r.Drain()
		if s := r.Stats(); s.State != Draining || s.Read == s.Committed {
			t.Errorf("state %s with %d of %d committed: nothing is in flight", s.State, s.Committed, s.Read)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s := r.Stats()
		if s.Read != s.Committed || s.Read != partition.read || !partition.acked.Covers(0, partition.read) || s.State != Stopped {
			t.Errorf("%d taken, %d read, %d committed, %v acknowledged, state %s",
				partition.read, s.Read, s.Committed, partition.acked, s.State)
		}
		if diff := cmp.Diff(partition.docs[0], to.allRows()[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// A drain waits for a sink that is unreachable, because the batches in flight have no
// other place to go.
func TestDrainWaitsForSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = failFirst(200, errors.New("away"))
		r := newHarness(t, newEndlessSource(newMemoryPartition("a", 0)), testScript{main: passThrough}, to)
		ended := r.start(t.Context())
		time.Sleep(time.Minute)
		r.Drain()
		time.Sleep(time.Minute)
		if s := r.Stats(); s.State != Draining || s.Committed != 0 {
			t.Errorf("state %s with %d committed", s.State, s.Committed)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Committed != s.Read || len(to.allRows()) != int(s.Read) {
			t.Errorf("%d committed and %d rows of %d", s.Committed, len(to.allRows()), s.Read)
		}
	})
}

// If nothing was read, a drain does not wait.
func TestDrainBeforeAnythingIsRead(t *testing.T) {
	away := func(context.Context) error { return errors.New("away") }
	for name, set := range map[string]func(q *memorySource, to *memorySink){
		"partitions":  func(q *memorySource, _ *memorySink) { q.onPartitions = away },
		"open sink":   func(_ *memorySource, to *memorySink) { to.onOpen = away },
		"open source": func(q *memorySource, _ *memorySink) { q.onOpen = away },
		"read":        func(q *memorySource, _ *memorySink) { q.onRead = away },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, to := newMemorySource(newMemoryPartition("a", 10)), newMemorySink()
				set(q, to)
				r := newHarness(t, q, testScript{main: passThrough}, to)
				ended := r.start(t.Context())
				time.Sleep(time.Minute)
				if state := r.Stats().State; state != Retrying {
					t.Errorf("state %s", state)
				}
				r.Drain()
				synctest.Wait()
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("still running")
					<-ended
				}
			})
		})
	}
}

func TestCancelStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = func(context.Context) error { return errors.New("away") }
		r := newHarness(t, newEndlessSource(newMemoryPartition("a", 0)), testScript{main: passThrough}, to)
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.start(ctx)
		time.Sleep(time.Minute)
		r.Drain()
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		default:
			t.Error("still running")
			<-ended
		}
	})
}
