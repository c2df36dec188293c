package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// newIdleSource returns a source that has delivered all its events and waits for more.
func newIdleSource(partition *memoryPartition) *memorySource {
	q := newMemorySource(partition)
	q.onRead = func(ctx context.Context) error {
		q.mu.Lock()
		exhausted := partition.read == uint64(len(partition.docs))
		q.mu.Unlock()
		if exhausted {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	return q
}

// TestHealthCheckAsksEverySink lets only the second of two sinks fail its health check,
// while no event arrives.
func TestHealthCheckAsksEverySink(t *testing.T) {
	lost := &event.PermanentError{Err: errors.New("set back"), Hint: "copy it again"}
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, test := range []struct {
		name          string
		first, second hook
		want          error // ends the run
		opened        int   // how often each sink was opened after a minute
	}{
		{name: "healthy", opened: 1},
		{name: "permanent", second: failFirst(1, lost), want: lost, opened: 1},
		{name: "fenced", second: failFirst(1, sink.ErrFenced), opened: 2},
		{name: "transient", second: failFirst(3, errors.New("connection refused")), opened: 1},
		{name: "transient for ever", second: failFirst(1<<40, errors.New("connection refused")), opened: 1},
		{name: "permanent behind one that is away", first: failFirst(1<<40, errors.New("connection refused")),
			second: failFirst(1, lost), want: lost, opened: 1},
		{name: "permanent behind one that hangs", first: hang, second: failFirst(1, lost), want: lost, opened: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				partition, first, second := newMemoryPartition("a", 30), newMemorySink(), newMemorySink()
				var checks [2]atomic.Int64
				first.onVerify = func(ctx context.Context) error { checks[0].Add(1); return test.first.call(ctx) }
				second.onVerify = func(ctx context.Context) error { checks[1].Add(1); return test.second.call(ctx) }
				r := severalSinks(t, newIdleSource(partition), testScript{main: passThrough}, first, second)
				ended := r.start(t.Context())
				time.Sleep(DefaultLease / 4)
				if n := len(second.allRows()); n != 30 || checks[1].Load() != 0 {
					t.Fatalf("%d rows and %d checks before the first health check", n, checks[1].Load())
				}
				time.Sleep(time.Minute)

				var err error
				select {
				case err = <-ended:
					if test.want == nil {
						t.Fatalf("ended with %v", err)
					}
				default:
					if test.want != nil {
						t.Error("the pipeline goes on as if nothing had been lost")
					}
					r.Drain()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
				if test.want != nil && (!errors.Is(err, test.want) || !event.IsPermanent(err) || err.Error() != "pipeline test: partition a: check sink 1: set back") {
					t.Errorf("ended with %v", err)
				}
				if a, b := first.opened("a"), second.opened("a"); a != test.opened || b != test.opened {
					t.Errorf("the sinks were opened %d and %d times, want %d", a, b, test.opened)
				}
				// A check every third of a lease; a sink that hangs delays it by as much.
				if n := checks[1].Load(); test.want == nil && n < 15 || test.want != nil && n != 1 {
					t.Errorf("the second sink was checked %d times", n)
				}
				if rows := second.allRows(); len(rows) != 30 || !partition.acked.Covers(0, 30) {
					t.Errorf("%d rows, acknowledged %v", len(rows), partition.acked)
				}
			})
		})
	}
}
