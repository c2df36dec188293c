package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// start runs the pipeline and returns a channel for the result.
func (r harness) start(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return ended
}

// failFirst returns a hook that fails the first n times.
func failFirst(n int64, err error) hook {
	var calls atomic.Int64
	return func(context.Context) error {
		if calls.Add(1) <= n {
			return err
		}
		return nil
	}
}

func TestRunToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, to := newMemoryPartition("a", 95), newMemoryPartition("b", 7), newMemorySink()
		odd := func(position uint64, doc string) ([]string, error) {
			switch position % 5 {
			case 1:
				return nil, nil
			case 2:
				return nil, errors.New("no good")
			case 3:
				return []string{doc, "bad " + doc}, nil
			}
			return []string{doc}, nil
		}
		r := newHarness(t, newMemorySource(a, b), testScript{main: odd}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := r.Stats()
		got.ScriptTime, got.BackpressureTime, got.Sinks[0].Time, got.Leases.Worker = 0, 0, 0, ""
		if commits := got.Sinks[0].Commits.Count; commits != 11 {
			t.Errorf("got %d commits, want 11", commits)
		}
		if deliveries := got.Deliveries.Count; deliveries != 11 {
			t.Errorf("got the times of %d deliveries, want 11", deliveries)
		}
		got.Sinks[0].Commits, got.Deliveries = Latencies{}, Latencies{}
		want := Stats{
			Read: 102, Committed: 102, Batches: 11, Bytes: got.Bytes,
			Dropped: 21, Dead: map[string]uint64{"script": 20, "sink": 20}, DeadEvents: 20,
			Started: []Start{{Partition: "a"}, {Partition: "b"}},
			Sinks:   []SinkStats{{Name: "table", Rows: 61}}, State: Stopped,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if rows, dead := len(to.allRows()), len(r.deadLetters(t)); rows != 61 || dead != 40 {
			t.Errorf("%d rows and %d dead letters", rows, dead)
		}
		if !a.acked.Covers(0, 95) || !b.acked.Covers(0, 7) {
			t.Errorf("acknowledged %v and %v", a.acked, b.acked)
		}
	})
}

func TestRejectedRows(t *testing.T) {
	to := newMemorySink()
	three := func(_ uint64, doc string) ([]string, error) {
		bad := " bad 1"
		if doc == "a/1" {
			bad = " bad misfit 1"
		}
		return []string{doc + " 0", doc + bad, doc + " 2"}, nil
	}
	r := newHarness(t, newMemorySource(newMemoryPartition("a", 2)), testScript{main: three}, to)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectSame(t, "rows", []string{"a/0 0", "a/0 2", "a/1 0", "a/1 2"}, to.allRows())
	var got []string
	for _, l := range r.deadLetters(t) {
		got = append(got, fmt.Sprintf("%s %s %d %d %s: %s, %s, %s",
			l.Pipeline, l.Partition, l.Position, l.Number, l.Stage, l.Error, l.Script, l.Original))
	}
	want := []string{
		"test a 0 1 sink: bad row, test.lua 1, a/0",
		"test a 1 1 column: bad row, test.lua 1, a/1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSinkIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newMemorySink()
		var away atomic.Bool
		to.beforeCommit = func(context.Context) error {
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		away.Store(true)
		q := newMemorySource(newMemoryPartition("a", 500))
		var reads atomic.Int64
		q.onRead = func(context.Context) error { reads.Add(1); return nil }
		r := newHarness(t, q, testScript{main: passThrough}, to)
		var log bytes.Buffer
		r.config.Log = slog.New(slog.NewTextHandler(&log, nil))
		r.Pipeline = New(r.config)
		ended := r.start(t.Context())

		time.Sleep(65 * time.Second)
		if n := reads.Load(); n != DefaultLanes+1 {
			t.Errorf("%d batches read while the sink is away", n)
		}
		if err := r.Ready(); err == nil || err.Error() != "retrying: sink table: connection refused" {
			t.Errorf("not ready for %v", err)
		}
		if s := r.Stats(); s.State != Retrying || s.Sinks[0].Retries == 0 || s.Sinks[0].Rows != 0 {
			t.Errorf("stats %+v", s)
		}
		away.Store(false)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "sink table failed; retrying"); n < 4 || n > 7 {
			t.Errorf("%d failures logged in 65 s:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "sink table recovered"); n != 1 {
			t.Errorf("%d recoveries logged:\n%s", n, log.String())
		}
		if n := len(to.allRows()); n != 500 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestEveryDependencyIsRetried(t *testing.T) {
	passing := errors.New("away")
	for name, set := range map[string]func(q *memorySource, to *memorySink){
		"partitions":   func(q *memorySource, _ *memorySink) { q.onPartitions = failFirst(3, passing) },
		"open source":  func(q *memorySource, _ *memorySink) { q.onOpen = failFirst(3, passing) },
		"read":         func(q *memorySource, _ *memorySink) { q.onRead = failFirst(3, passing) },
		"acknowledge":  func(q *memorySource, _ *memorySink) { q.onAck = failFirst(3, passing) },
		"open sink":    func(_ *memorySource, to *memorySink) { to.onOpen = failFirst(3, passing) },
		"write":        func(_ *memorySource, to *memorySink) { to.beforeCommit = failFirst(3, passing) },
		"after commit": func(_ *memorySource, to *memorySink) { to.afterCommit = failFirst(3, passing) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				partition, to := newMemoryPartition("a", 100), newMemorySink()
				q := newMemorySource(partition)
				set(q, to)
				r := newHarness(t, q, testScript{main: passThrough}, to)
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				expectSame(t, "rows", append([]string(nil), partition.docs...), to.allRows())
				s := r.Stats()
				if n := s.SourceRetries + s.Sinks[0].Retries; n != 3 {
					t.Errorf("%d retries counted", n)
				}
			})
		})
	}
}

// failingDeadLetters fails some attempts to store dead letters.
type failingDeadLetters struct {
	DeadLetters
	try hook
}

func (s failingDeadLetters) Replace(pipeline, partition string, r event.Range, dead []event.DeadLetter) error {
	if err := s.try.call(context.Background()); err != nil {
		return err
	}
	return s.DeadLetters.Replace(pipeline, partition, r, dead)
}

func TestDeadLettersCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(uint64, string) ([]string, error) { return nil, errors.New("no good") }
		r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: refuse}, newMemorySink())
		r.config.DeadLetters = failingDeadLetters{r.store, failFirst(3, errors.New("no space left on device"))}
		r.Pipeline = New(r.config)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := r.Stats(); s.DeadLetterRetries != 3 || s.Committed != 10 {
			t.Errorf("%d failures counted, %d events committed", s.DeadLetterRetries, s.Committed)
		}
		if n := len(r.deadLetters(t)); n != 10 {
			t.Errorf("%d dead letters kept", n)
		}
	})
}

func TestPermanentErrorsStop(t *testing.T) {
	atSink := &event.PermanentError{Err: errors.New("no such table"), Hint: "create it"}
	atSource := &event.PermanentError{Err: errors.New("gap [3,5)"), Hint: "restore it"}
	for name, set := range map[string]func(q *memorySource, to *memorySink){
		"partition a: open sink table: no such table":     func(_ *memorySource, to *memorySink) { to.onOpen = failFirst(1, atSink) },
		"partition a: write to sink table: no such table": func(_ *memorySource, to *memorySink) { to.beforeCommit = failFirst(1, atSink) },
		"partition a: open source: gap [3,5)":             func(q *memorySource, _ *memorySink) { q.onOpen = failFirst(1, atSource) },
		"partition a: read from source: gap [3,5)":        func(q *memorySource, _ *memorySink) { q.onRead = failFirst(1, atSource) },
		"partition a: acknowledge to source: gap [3,5)":   func(q *memorySource, _ *memorySink) { q.onAck = failFirst(1, atSource) },
		"list partitions of source: gap [3,5)":            func(q *memorySource, _ *memorySink) { q.onPartitions = failFirst(1, atSource) },
	} {
		t.Run(name, func(t *testing.T) {
			q, to := newMemorySource(newMemoryPartition("a", 100)), newMemorySink()
			set(q, to)
			r := newHarness(t, q, testScript{main: passThrough}, to)
			err := r.Run(t.Context())
			if err == nil || err.Error() != "pipeline test: "+name {
				t.Fatalf("ended with %v", err)
			}
			if !errors.Is(err, atSink) && !errors.Is(err, atSource) {
				t.Error("the hint is lost")
			}
			if s := r.Stats(); s.State != Stopped || s.Err == nil {
				t.Errorf("state %s: %v", s.State, s.Err)
			}
		})
	}
}

func TestFencedPartitionIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partition, to := newMemoryPartition("a", 300), newMemorySink()
		var writes atomic.Int64
		to.beforeCommit = func(context.Context) error {
			if writes.Add(1)%10 == 0 {
				to.takeOver("a")
			}
			return nil
		}
		r := newHarness(t, newMemorySource(partition), testScript{main: passThrough}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "rows", append([]string(nil), partition.docs...), to.allRows())
		if to.epochs["a"] < 6 {
			t.Errorf("opened and taken over only %d times", to.epochs["a"])
		}
	})
}

// Batches that were read before the source moved are committed under the old name
// before the partitions are listed again.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next, to := newMemoryPartition("old", 50), newMemoryPartition("new", 30), newMemorySink()
		q := newMemorySource(old)
		q.atEnd = func(q *memorySource, s *memoryPartition) error {
			if s == next {
				return io.EOF
			}
			q.partitions = []*memoryPartition{next}
			return source.ErrMoved
		}
		// Not a divisor of listInterval: a listing may begin in the instant in which
		// the source moves, before the session notices it.
		to.beforeCommit = func(ctx context.Context) error { sleep(ctx, 700*time.Millisecond); return nil }
		q.onPartitions = func(context.Context) error {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.partitions[0] == next && len(to.allRows()) < 50 {
				t.Errorf("asked with %d of 50 rows committed", len(to.allRows()))
			}
			return nil
		}
		r := newHarness(t, q, testScript{main: passThrough}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "rows", append(append([]string(nil), old.docs...), next.docs...), to.allRows())
	})
}

func TestLimits(t *testing.T) {
	t.Run("the rest runs again", func(t *testing.T) {
		partition, to := newMemoryPartition("a", 100), newMemorySink()
		half := testScript{main: passThrough, limit: func(n int) int { return (n + 1) / 2 }}
		q := newMemorySource(partition)
		q.batch = func() int { return 4 }
		r := newHarness(t, q, half, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "rows", append([]string(nil), partition.docs...), to.allRows())
		if len(to.ranges["a"]) != 1 || !partition.acked.Covers(0, 100) {
			t.Errorf("committed %v, acknowledged %v", to.ranges["a"], partition.acked)
		}
	})
}

func TestPanicsFailThePipeline(t *testing.T) {
	burst := func(context.Context) error { panic("burst") }
	for name, set := range map[string]func(q *memorySource, to *memorySink, p *testScript){
		"partitions": func(q *memorySource, _ *memorySink, _ *testScript) { q.onPartitions = burst },
		"open":       func(q *memorySource, _ *memorySink, _ *testScript) { q.onOpen = burst },
		"read":       func(q *memorySource, _ *memorySink, _ *testScript) { q.onRead = burst },
		"ack":        func(q *memorySource, _ *memorySink, _ *testScript) { q.onAck = burst },
		"write":      func(_ *memorySource, to *memorySink, _ *testScript) { to.beforeCommit = burst },
		"script": func(_ *memorySource, _ *memorySink, p *testScript) {
			p.main = func(uint64, string) ([]string, error) { panic("burst") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, to, p := newMemorySource(newMemoryPartition("a", 100)), newMemorySink(), testScript{main: passThrough}
			set(q, to, &p)
			err := newHarness(t, q, p, to).Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), "panic: burst") {
				t.Fatalf("ended with %v", err)
			}
		})
	}
}

func TestBugsOfDependenciesAreErrors(t *testing.T) {
	t.Run("a script that leaves events out", func(t *testing.T) {
		short := testScript{main: passThrough, limit: func(n int) int { return n - 1 }}
		err := newHarness(t, newMemorySource(newMemoryPartition("a", 9)), silent{short}, newMemorySink()).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "ran 8 of 9 events and returned no error") {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("a source that reads nothing", func(t *testing.T) {
		q := newMemorySource(newMemoryPartition("a", 9))
		q.atEnd = func(*memorySource, *memoryPartition) error { return nil }
		err := newHarness(t, q, testScript{main: passThrough}, newMemorySink()).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "0 events for the positions [9,9)") {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("a sink that rejects an unknown row", func(t *testing.T) {
		to := newMemorySink()
		to.beforeCommit = func(context.Context) error {
			return &sink.RowErrors{Rows: []sink.RowError{{Row: 9, Err: errors.New("odd")}}}
		}
		err := newHarness(t, newMemorySource(newMemoryPartition("a", 9)), testScript{main: passThrough}, to).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "rejected row 9 of 9") {
			t.Errorf("ended with %v", err)
		}
	})
}

// silent is a testScript that does not report limits.
type silent struct{ testScript }

func (s silent) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	_ = s.testScript.Run(ctx, in, res)
	return nil
}
