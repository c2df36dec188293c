package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A worker's view of a place that several workers share. While it is frozen
// nothing that it asks for goes on, as when the process is stopped; while it is
// cut off everything fails.
type workerView struct {
	sink.Sink
	leases sink.LeaseStore
	mu     sync.Mutex
	thaw   chan struct{} // closed unless frozen
	cutOff atomic.Bool
	opens  atomic.Int64
}

func newWorkerView(of sink.Sink) *workerView {
	v := &workerView{Sink: of, leases: of.Traits().Leases, thaw: make(chan struct{})}
	close(v.thaw)
	return v
}

func (v *workerView) freeze() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.thaw = make(chan struct{})
}

func (v *workerView) unfreeze() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.thaw)
}

func (v *workerView) waitForThaw() error {
	v.mu.Lock()
	thaw := v.thaw
	v.mu.Unlock()
	<-thaw
	if v.cutOff.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (v *workerView) Open(ctx context.Context, partition string) (sink.Writer, event.Ranges, error) {
	if err := v.waitForThaw(); err != nil {
		return nil, nil, err
	}
	v.opens.Add(1)
	w, done, err := v.Sink.Open(ctx, partition)
	return viewWriter{w, v}, done, err
}

func (v *workerView) Traits() sink.Traits {
	traits := v.Sink.Traits()
	traits.Leases = v
	return traits
}

func (v *workerView) AcquireLease(ctx context.Context, partition, worker string, d time.Duration) (string, error) {
	if err := v.waitForThaw(); err != nil {
		return "", err
	}
	return v.leases.AcquireLease(ctx, partition, worker, d)
}

func (v *workerView) ReleaseLease(ctx context.Context, partition, worker string) error {
	if err := v.waitForThaw(); err != nil {
		return err
	}
	return v.leases.ReleaseLease(ctx, partition, worker)
}

func (v *workerView) Heartbeat(ctx context.Context, worker string, d time.Duration) (int, error) {
	if err := v.waitForThaw(); err != nil {
		return 0, err
	}
	return v.leases.Heartbeat(ctx, worker, d)
}

type viewWriter struct {
	sink.Writer
	view *workerView
}

func (w viewWriter) Write(ctx context.Context, out *event.Output) error {
	if err := w.view.waitForThaw(); err != nil {
		return err
	}
	return w.Writer.Write(ctx, out)
}

// A testWorker is one worker among several, with what it does.
type testWorker struct {
	harness
	view  *workerView
	ended <-chan error
	kill  context.CancelFunc
}

// newTestWorkers starts workers that share a queue and a table.
func newTestWorkers(t *testing.T, n int, q *memorySource, to *sharedSink) []*testWorker {
	t.Helper()
	var all []*testWorker
	for i := range n {
		all = append(all, newTestWorker(t, fmt.Sprintf("worker %d", i), q, to))
	}
	return all
}

func newTestWorker(t *testing.T, name string, q *memorySource, to *sharedSink) *testWorker {
	t.Helper()
	c := &testWorker{view: newWorkerView(to)}
	c.harness = newHarness(t, q, testScript{main: passThrough}, c.view)
	c.config.Worker = name
	c.Pipeline = New(c.config)
	var ctx context.Context
	ctx, c.kill = context.WithCancel(t.Context())
	c.ended = c.start(ctx)
	return c
}

// newSlowSource makes a queue of so many partitions that always have more.
func newSlowSource(partitions int) *memorySource {
	var shelves []*memoryPartition
	for i := range partitions {
		shelves = append(shelves, newMemoryPartition(string(rune('a'+i)), 6000))
	}
	q := newMemorySource(shelves...)
	q.batch = func() int { return 3 }
	q.onRead = func(ctx context.Context) error { sleep(ctx, 100*time.Millisecond); return ctx.Err() }
	return q
}

// countHeld waits for d and returns how many partitions each worker holds and has open.
func countHeld(t *testing.T, d time.Duration, crew []*testWorker) (counts []int) {
	t.Helper()
	time.Sleep(d)
	for _, c := range crew {
		s := c.Stats()
		if s.Leases.Held != s.OpenPartitions {
			t.Errorf("%s holds %d leases and has %d partitions open", s.Leases.Worker, s.Leases.Held, s.OpenPartitions)
		}
		counts = append(counts, s.Leases.Held)
	}
	return counts
}

func expectCounts(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: partitions by worker are %v, want %v", what, got, want)
	}
}

// expectRowsOnce fails the test unless the rows are those of the queue's events that were
// read, each once.
func expectRowsOnce(t *testing.T, q *memorySource, to *sharedSink) {
	t.Helper()
	var want []string
	for _, s := range q.partitions {
		want = append(want, s.docs[:s.acked.Next(0)]...)
	}
	expectSame(t, "rows", want, to.allRows())
}

func drainWorkers(t *testing.T, crew ...*testWorker) {
	t.Helper()
	for _, c := range crew {
		c.Drain()
	}
	for _, c := range crew {
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
		c.kill()
	}
}

func TestWorkersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(4), newSharedSink()
		first := newTestWorkers(t, 1, q, to)
		expectCounts(t, "alone", countHeld(t, 3*time.Second, first), 4)
		crew := append(first, newTestWorker(t, "second", q, to))
		expectCounts(t, "two", countHeld(t, 15*time.Second, crew), 2, 2)
		if s := crew[0].Stats(); s.Leases.Workers != 2 || s.Leases.NotHeld != 2 || s.State != Running {
			t.Errorf("%+v", s)
		}
		crew = append(crew, newTestWorker(t, "third", q, to), newTestWorker(t, "fourth", q, to))
		expectCounts(t, "four", countHeld(t, 15*time.Second, crew), 1, 1, 1, 1)

		// Whoever leaves says so: others need not wait for leases to run out.
		drainWorkers(t, crew[1], crew[2])
		expectCounts(t, "two left", countHeld(t, 3*time.Second, []*testWorker{crew[0], crew[3]}), 2, 2)
		drainWorkers(t, crew[0], crew[3])
		expectRowsOnce(t, q, to)
		if len(to.held) != 0 {
			t.Errorf("leases are left behind: %v", to.held)
		}
	})
}

// A worker that dies without a word loses its partitions when its leases run out.
func TestWorkerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(4), newSharedSink()
		crew := newTestWorkers(t, 2, q, to)
		expectCounts(t, "two", countHeld(t, 15*time.Second, crew), 2, 2)
		crew[0].view.cutOff.Store(true)
		crew[0].kill()
		<-crew[0].ended
		expectCounts(t, "within its lease", countHeld(t, 5*time.Second, crew[1:]), 2)
		expectCounts(t, "after its lease", countHeld(t, 7*time.Second, crew[1:]), 4)

		// The name of a worker that starts again is the same: it need not wait.
		crew[1].view.cutOff.Store(true)
		crew[1].kill()
		<-crew[1].ended
		again := newTestWorker(t, "worker 1", q, to)
		expectCounts(t, "again", countHeld(t, 2*time.Second, []*testWorker{again}), 4)
		drainWorkers(t, again)
		expectRowsOnce(t, q, to)
	})
}

// A worker that was stopped and goes on finds its partitions taken, and leaves
// them where they are.
func TestFrozenWorkerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		crew := newTestWorkers(t, 2, q, to)
		expectCounts(t, "two", countHeld(t, 15*time.Second, crew), 1, 1)
		crew[0].view.freeze()
		time.Sleep(15 * time.Second)
		expectCounts(t, "one is frozen", countHeld(t, 0, crew[1:]), 2)
		opens := crew[1].view.opens.Load()
		crew[0].view.unfreeze()
		expectCounts(t, "it goes on", countHeld(t, 20*time.Second, crew), 1, 1)
		if more := crew[1].view.opens.Load() - opens; more > 0 {
			t.Errorf("the other had to open partitions again %d times", more)
		}
		drainWorkers(t, crew...)
		expectRowsOnce(t, q, to)
	})
}

// A worker that cannot renew its leases stops before they are over, even when
// it could go on writing.
func TestWorkerStopsBeforeItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		alone := newTestWorker(t, "alone", q, to)
		expectCounts(t, "alone", countHeld(t, 10*time.Second, []*testWorker{alone}), 2)
		alone.view.cutOff.Store(true)
		time.Sleep(DefaultLease)
		if s := alone.Stats(); s.OpenPartitions != 0 || s.State != Retrying {
			t.Errorf("%d partitions are open in state %s", s.OpenPartitions, s.State)
		}
		alone.view.cutOff.Store(false)
		expectCounts(t, "back", countHeld(t, 5*time.Second, []*testWorker{alone}), 2)
		drainWorkers(t, alone)
		expectRowsOnce(t, q, to)
	})
}

// Who shares partitions ends when all of them are exhausted, whoever did it.
func TestWorkersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(5), newSharedSink()
		for _, s := range q.partitions {
			s.docs = s.docs[:30]
		}
		for _, c := range newTestWorkers(t, 3, q, to) {
			if err := <-c.ended; err != nil {
				t.Error(err)
			}
			c.kill()
		}
		for _, s := range q.partitions {
			if !s.acked.Covers(0, 30) {
				t.Errorf("partition %s is acknowledged for %v", s.name, s.acked)
			}
		}
		expectRowsOnce(t, q, to)
	})
}

// localSource is a source that only one worker can see.
type localSource struct{ *memorySource }

func (localSource) Traits() source.Traits {
	return source.Traits{Local: func(string) bool { return true }}
}

func TestLocalPartitionsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newSharedSink()
		to.held["a"] = memoryLease{"somebody", time.Now().Add(time.Hour)}
		r := newHarness(t, localSource{newMemorySource(newMemoryPartition("a", 20), newMemoryPartition("b", 20))}, testScript{main: passThrough}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(to.allRows()); n != 40 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestChaosOfWorkers lets workers come, go, freeze and lose their connection
// at random. In the end every event has landed once.
func TestChaosOfWorkers(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testChaosOfWorkers(t, seed) })
		})
	}
}

func testChaosOfWorkers(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	q, to := newSlowSource(1+rng.IntN(6)), newSharedSink()
	for _, s := range q.partitions {
		s.docs = s.docs[:1500]
	}
	q.atEnd = func(*memorySource, *memoryPartition) error { return io.EOF }
	names, crew := 0, map[*testWorker]bool{}
	for round := range 60 {
		if len(crew) < 1+rng.IntN(4) {
			names++
			crew[newTestWorker(t, fmt.Sprint("worker ", names), q, to)] = true
		}
		for c := range crew {
			disturb(t, rng, c)
			select {
			case err := <-c.ended:
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("round %d: %v", round, err)
				}
				delete(crew, c)
			default:
			}
			break
		}
		time.Sleep(time.Duration(rng.IntN(6000)) * time.Millisecond)
	}
	for c := range crew {
		c.kill()
		<-c.ended
	}
	last := newTestWorker(t, "last", q, to)
	if err := <-last.ended; err != nil {
		t.Fatal(err)
	}
	last.kill()
	for _, s := range q.partitions {
		if !s.acked.Covers(0, uint64(len(s.docs))) {
			t.Errorf("partition %s is acknowledged for %v", s.name, s.acked)
		}
	}
	expectRowsOnce(t, q, to)
}

// disturb does one bad thing to a worker, for as long as it takes.
func disturb(t *testing.T, rng *rand.Rand, c *testWorker) {
	d := time.Duration(rng.IntN(20_000)) * time.Millisecond
	switch rng.IntN(8) {
	case 0:
		c.kill()
		<-c.ended
		c.ended = closedEnd()
	case 1:
		c.Drain()
	case 2:
		c.view.freeze()
		time.Sleep(d)
		c.view.unfreeze()
	case 3:
		c.view.cutOff.Store(true)
		time.Sleep(d)
		c.view.cutOff.Store(false)
	case 4:
		if err := c.Pause("for a moment"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		if err := c.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

func closedEnd() <-chan error {
	ended := make(chan error)
	close(ended)
	return ended
}

// Being fenced means that another worker goes on; it is for the lease to say who.
func TestFencedWorkerDoesNotTakeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		alone := newTestWorker(t, "alone", q, to)
		expectCounts(t, "alone", countHeld(t, 10*time.Second, []*testWorker{alone}), 2)
		opens := alone.view.opens.Load()
		to.give("a", "somebody", time.Minute)
		to.takeOver("a")
		expectCounts(t, "fenced", countHeld(t, 30*time.Second, []*testWorker{alone}), 1)
		if more := alone.view.opens.Load() - opens; more > 0 {
			t.Errorf("it opened the partition %d times while somebody else had it", more)
		}
		expectCounts(t, "after the other's lease", countHeld(t, 40*time.Second, []*testWorker{alone}), 2)

		// Who is fenced and still has the lease goes on.
		to.takeOver("b")
		expectCounts(t, "still the holder", countHeld(t, 5*time.Second, []*testWorker{alone}), 2)
		drainWorkers(t, alone)
		expectRowsOnce(t, q, to)
	})
}

// The letters of a run that was fenced before anything of it was committed are
// those of nobody: whoever has the partition now keeps its own.
func TestFencedRunTakesItsLettersBack(t *testing.T) {
	for name, test := range map[string]struct {
		failures int64 // of the write before it is fenced: one may have been committed
		letters  int
	}{
		"nothing was committed":   {0, 0},
		"something may have been": {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newSharedSink()
				lost := failFirst(test.failures, errors.New("connection lost"))
				to.beforeCommit = func(ctx context.Context) error {
					if err := lost(ctx); err != nil {
						return err
					}
					to.give("a", "somebody", time.Hour)
					to.takeOver("a")
					return nil
				}
				no := func(position uint64, doc string) ([]string, error) {
					if position == 0 {
						return nil, errors.New("no")
					}
					return []string{doc}, nil
				}
				r := newHarness(t, newMemorySource(newMemoryPartition("a", 10)), testScript{main: no}, to)
				ctx, cancel := context.WithCancel(t.Context())
				ended := r.start(ctx)
				time.Sleep(time.Minute)
				if letters := r.deadLetters(t); len(letters) != test.letters || len(to.allRows()) > 0 {
					t.Errorf("%d letters and %d rows are there", len(letters), len(to.allRows()))
				}
				cancel()
				<-ended
			})
		})
	}
}
