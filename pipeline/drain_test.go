package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// endless is a source that has always more.
func endless(s *shelf) *queue {
	q := newQueue(s)
	more := newShelf(s.name, 100_000).docs
	s.docs = more
	q.onRead = func(ctx context.Context) error { sleep(ctx, time.Millisecond); return ctx.Err() }
	return q
}

func TestDrainSettlesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf, to := newShelf("a", 0), newTable()
		to.beforeCommit = func(ctx context.Context) error { sleep(ctx, 10*time.Millisecond); return ctx.Err() }
		r := newBench(t, endless(shelf), program{main: pass}, to)
		ended := r.start(t.Context())
		time.Sleep(time.Second)
		if err := r.Ready(); err != nil {
			t.Errorf("not ready for %v", err)
		}
		r.Drain()
		r.Drain()
		if s := r.Stats(); s.State != Draining || s.Read == s.Committed {
			t.Errorf("state %s with %d of %d settled: nothing is left to drain", s.State, s.Committed, s.Read)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		s := r.Stats()
		if s.Read != s.Committed || s.Read != shelf.read || !shelf.acked.Covers(0, shelf.read) || s.State != Stopped {
			t.Errorf("%d taken, %d read, %d settled, %v acknowledged, state %s",
				shelf.read, s.Read, s.Committed, shelf.acked, s.State)
		}
		if diff := cmp.Diff(shelf.docs[0], to.all()[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// A drain waits for a sink that is away: what was read has no other place to go.
func TestDrainWaitsForSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTable()
		to.beforeCommit = failing(200, errors.New("away"))
		r := newBench(t, endless(newShelf("a", 0)), program{main: pass}, to)
		ended := r.start(t.Context())
		time.Sleep(time.Minute)
		r.Drain()
		time.Sleep(time.Minute)
		if s := r.Stats(); s.State != Draining || s.Committed != 0 {
			t.Errorf("state %s with %d settled", s.State, s.Committed)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.Committed != s.Read || len(to.all()) != int(s.Read) {
			t.Errorf("%d settled and %d rows of %d", s.Committed, len(to.all()), s.Read)
		}
	})
}

// Where nothing was read, a drain has nothing to wait for.
func TestDrainBeforeAnythingIsRead(t *testing.T) {
	away := func(context.Context) error { return errors.New("away") }
	for name, set := range map[string]func(q *queue, to *table){
		"partitions":  func(q *queue, _ *table) { q.onPartitions = away },
		"open sink":   func(_ *queue, to *table) { to.onOpen = away },
		"open source": func(q *queue, _ *table) { q.onOpen = away },
		"read":        func(q *queue, _ *table) { q.onRead = away },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, to := newQueue(newShelf("a", 10)), newTable()
				set(q, to)
				r := newBench(t, q, program{main: pass}, to)
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
		to := newTable()
		to.beforeCommit = func(context.Context) error { return errors.New("away") }
		r := newBench(t, endless(newShelf("a", 0)), program{main: pass}, to)
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
