package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A workerView is one worker's view of a sink that several workers share. While it is
// frozen, calls block, as if the process were stopped. While it is cut off, they fail.
// refuse fails one method of the leases.
type workerView struct {
	sink.Sink
	leases sink.LeaseStore
	refuse func(method string) error // nil refuses nothing
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

// callLeases waits for the thaw before a method of the leases.
func (v *workerView) callLeases(method string) error {
	if err := v.waitForThaw(); err != nil || v.refuse == nil {
		return err
	}
	return v.refuse(method)
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

func (v *workerView) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) ([]string, error) {
	if err := v.callLeases("AcquireLeases"); err != nil {
		return make([]string, len(partitions)), err
	}
	return v.leases.AcquireLeases(ctx, partitions, worker, d)
}

func (v *workerView) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	if err := v.callLeases("ReleaseLeases"); err != nil {
		return err
	}
	return v.leases.ReleaseLeases(ctx, partitions, worker)
}

func (v *workerView) Heartbeat(ctx context.Context, worker string, d time.Duration) (int, error) {
	if err := v.callLeases("Heartbeat"); err != nil {
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

// A testWorker is one of several workers that share a pipeline.
type testWorker struct {
	harness
	view  *workerView
	ended <-chan error
	kill  context.CancelFunc
}

// newTestWorkers starts workers that share a source and a sink.
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
	return newRefusedWorker(t, name, q, to, nil)
}

// newRefusedWorker starts a worker for which the store of the leases refuses calls.
func newRefusedWorker(t *testing.T, name string, q *memorySource, to *sharedSink, refuse func(method string) error) *testWorker {
	t.Helper()
	c := &testWorker{view: newWorkerView(to)}
	c.view.refuse = refuse
	c.harness = newHarness(t, q, testScript{main: passThrough}, c.view)
	c.config.Worker = name
	c.Pipeline = New(c.config)
	var ctx context.Context
	ctx, c.kill = context.WithCancel(t.Context())
	c.ended = c.start(ctx)
	return c
}

// newSlowSource returns a source whose partitions yield a few events at a time.
func newSlowSource(count int) *memorySource {
	var partitions []*memoryPartition
	for i := range count {
		partitions = append(partitions, newMemoryPartition(string(rune('a'+i)), 6000))
	}
	q := newMemorySource(partitions...)
	q.batch = func() int { return 3 }
	q.onRead = func(ctx context.Context) error { sleep(ctx, 100*time.Millisecond); return ctx.Err() }
	return q
}

// countHeld waits for d and returns how many partitions each worker holds. It fails the
// test if a worker has others open.
func countHeld(t *testing.T, d time.Duration, workers []*testWorker) (counts []int) {
	t.Helper()
	time.Sleep(d)
	for _, c := range workers {
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

// expectRowsOnce fails the test unless the sink has each acknowledged event once.
func expectRowsOnce(t *testing.T, q *memorySource, to *sharedSink) {
	t.Helper()
	var want []string
	for _, s := range q.partitions {
		want = append(want, s.docs[:s.acked.Next(0)]...)
	}
	expectSame(t, "rows", want, to.allRows())
}

func drainWorkers(t *testing.T, workers ...*testWorker) {
	t.Helper()
	for _, c := range workers {
		c.Drain()
	}
	for _, c := range workers {
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
		workers := append(first, newTestWorker(t, "second", q, to))
		expectCounts(t, "two", countHeld(t, 15*time.Second, workers), 2, 2)
		if s := workers[0].Stats(); s.Leases.Workers != 2 || s.Leases.NotHeld != 2 || s.State != Running {
			t.Errorf("%+v", s)
		}
		workers = append(workers, newTestWorker(t, "third", q, to), newTestWorker(t, "fourth", q, to))
		expectCounts(t, "four", countHeld(t, 15*time.Second, workers), 1, 1, 1, 1)

		// A worker that stops releases its leases: the others need not wait for expiry.
		drainWorkers(t, workers[1], workers[2])
		expectCounts(t, "two left", countHeld(t, 3*time.Second, []*testWorker{workers[0], workers[3]}), 2, 2)
		drainWorkers(t, workers[0], workers[3])
		expectRowsOnce(t, q, to)
		if len(to.held) != 0 {
			t.Errorf("leases are left behind: %v", to.held)
		}
	})
}

// A worker that is killed loses its partitions when its leases expire.
func TestWorkerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(4), newSharedSink()
		workers := newTestWorkers(t, 2, q, to)
		expectCounts(t, "two", countHeld(t, 15*time.Second, workers), 2, 2)
		workers[0].view.cutOff.Store(true)
		workers[0].kill()
		<-workers[0].ended
		expectCounts(t, "within its lease", countHeld(t, 5*time.Second, workers[1:]), 2)
		expectCounts(t, "after its lease", countHeld(t, 7*time.Second, workers[1:]), 4)

		// A worker that restarts under the same name need not wait.
		workers[1].view.cutOff.Store(true)
		workers[1].kill()
		<-workers[1].ended
		again := newTestWorker(t, "worker 1", q, to)
		expectCounts(t, "again", countHeld(t, 2*time.Second, []*testWorker{again}), 4)
		drainWorkers(t, again)
		expectRowsOnce(t, q, to)
	})
}

// A worker that was suspended and resumes finds its partitions taken, and does not take
// them back.
func TestSuspendedWorkerResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		workers := newTestWorkers(t, 2, q, to)
		expectCounts(t, "two", countHeld(t, 15*time.Second, workers), 1, 1)
		workers[0].view.freeze()
		time.Sleep(15 * time.Second)
		expectCounts(t, "one is frozen", countHeld(t, 0, workers[1:]), 2)
		opens := workers[1].view.opens.Load()
		workers[0].view.unfreeze()
		expectCounts(t, "it goes on", countHeld(t, 20*time.Second, workers), 1, 1)
		if more := workers[1].view.opens.Load() - opens; more > 0 {
			t.Errorf("the other had to open partitions again %d times", more)
		}
		drainWorkers(t, workers...)
		expectRowsOnce(t, q, to)
	})
}

// A worker that cannot renew its leases stops before they expire, even if it could
// still write.
func TestWorkerStopsBeforeItsLeaseExpires(t *testing.T) {
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

// While the store of the leases refuses a call, the status says which. A worker keeps what it
// has, takes no more than its share, and carries on when the store answers again.
func TestLeaseStoreRefuses(t *testing.T) {
	for _, test := range []struct {
		name, method string
		from, until  time.Duration // since the start
		held         int           // meanwhile
		reason       string
	}{
		{"the first leases", "AcquireLeases", 0, 5 * time.Second, 0, "leases at sink table: request the lease of partition "},
		{"a renewal", "AcquireLeases", 2 * time.Second, 6 * time.Second, 2, "leases at sink table: request the lease of partition "},
		{"the first sign of life", "Heartbeat", 0, 5 * time.Second, 0, "leases at sink table: report this worker as alive: refused"},
		{"a sign of life", "Heartbeat", 2 * time.Second, 5 * time.Second, 2, "leases at sink table: report this worker as alive: refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				q, to := newSlowSource(2), newSharedSink()
				alone := newRefusedWorker(t, "alone", q, to, func(method string) error {
					if at := time.Since(began); method == test.method && at >= test.from && at < test.until {
						return errors.New("refused")
					}
					return nil
				})
				time.Sleep(test.until - 100*time.Millisecond)
				s := alone.Stats()
				if s.State != Retrying || s.Err == nil || !strings.HasPrefix(s.Err.Error(), test.reason) || s.Leases.Retries == 0 || s.OpenPartitions != test.held {
					t.Errorf("%d partitions are open, %d retries, in state %s: %v", s.OpenPartitions, s.Leases.Retries, s.State, s.Err)
				}
				expectCounts(t, "answers again", countHeld(t, 3*time.Second, []*testWorker{alone}), 2)
				if again := alone.Stats(); again.State != Running || again.Leases.Workers != 1 || alone.view.opens.Load() != 2 {
					t.Errorf("state %s, %d workers, opened %d times", again.State, again.Leases.Workers, alone.view.opens.Load())
				}
				drainWorkers(t, alone)
				expectRowsOnce(t, q, to)
			})
		})
	}
}

// hangingLeases is a store of leases that does not answer.
type hangingLeases struct{ sink.LeaseStore }

func (hangingLeases) Heartbeat(ctx context.Context, _ string, _ time.Duration) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// A call that hangs is given up after a third of a lease: there is time for another one.
func TestLeaseStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := &leaseManager{store: hangingLeases{}, lease: 9 * time.Second, renewed: began}
		err := m.maintain(t.Context())
		if waited := time.Since(began); waited != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited for %v: %v", waited, err)
		}
	})
}

// A lease that could not be released is released a moment later: the other worker need not
// wait until it expires.
func TestLeaseIsReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		refused := 0
		first := newRefusedWorker(t, "first", q, to, func(method string) error {
			if method == "ReleaseLeases" && refused == 0 {
				refused++
				return errors.New("refused")
			}
			return nil
		})
		expectCounts(t, "alone", countHeld(t, 10*time.Second, []*testWorker{first}), 2)
		workers := []*testWorker{first, newTestWorker(t, "second", q, to)}
		expectCounts(t, "two", countHeld(t, 5*time.Second, workers), 1, 1)
		if s := first.Stats(); refused != 1 || s.Leases.Retries != 1 || s.State != Running {
			t.Errorf("%d refused, %d retries, in state %s", refused, s.Leases.Retries, s.State)
		}
		drainWorkers(t, workers...)
		expectRowsOnce(t, q, to)
	})
}

// An error of the leases that retrying does not help ends the pipeline.
func TestLeasesFailForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newSlowSource(2), newSharedSink()
		began := time.Now()
		alone := newRefusedWorker(t, "alone", q, to, func(method string) error {
			if method == "Heartbeat" && time.Since(began) > 2*time.Second {
				return &event.PermanentError{Err: errors.New("no grant"), Hint: "grant it"}
			}
			return nil
		})
		err := <-alone.ended
		if event.HintOf(err) != "grant it" || !strings.Contains(err.Error(), "share partitions: report this worker as alive: no grant") {
			t.Errorf("ended with %v", err)
		}
		alone.kill()
	})
}

// All workers end when all partitions are exhausted.
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
			if s := c.Stats().Leases; s.Workers != 0 || s.Held != 0 || s.NotHeld != 0 {
				t.Errorf("%s ended with the leases %+v", s.Worker, s)
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

// localSource is a source that only one worker can read.
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

// TestChaosOfWorkers starts, stops, suspends and disconnects workers at random. At the
// end every event was written once.
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
	names, workers := 0, map[*testWorker]bool{}
	for round := range 60 {
		if len(workers) < 1+rng.IntN(4) {
			names++
			workers[newTestWorker(t, fmt.Sprint("worker ", names), q, to)] = true
		}
		for c := range workers {
			disturb(t, rng, c)
			select {
			case err := <-c.ended:
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("round %d: %v", round, err)
				}
				delete(workers, c)
			default:
			}
			break
		}
		time.Sleep(time.Duration(rng.IntN(6000)) * time.Millisecond)
	}
	for c := range workers {
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

// disturb injects one fault into a worker and waits until it is over.
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

// A fenced worker does not take the partition back: the lease decides who continues.
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

		// A fenced worker that still holds the lease continues.
		to.takeOver("b")
		expectCounts(t, "still the holder", countHeld(t, 5*time.Second, []*testWorker{alone}), 2)
		drainWorkers(t, alone)
		expectRowsOnce(t, q, to)
	})
}

// A run that is fenced before any sink committed its range withdraws its dead letters:
// the new owner of the partition stores its own.
func TestFencedRunWithdrawsItsDeadLetters(t *testing.T) {
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

// TestWorkerName: the name stays in the folder, and is made again where a crash left none.
func TestWorkerName(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, workerFile)
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	name := func() string {
		t.Helper()
		name, err := WorkerName(folder)
		if err != nil {
			t.Fatal(err)
		}
		if bits, found := strings.CutPrefix(name, host+"-"); !found || len(bits) != 16 {
			t.Errorf("the name is %q", name)
		}
		return name
	}
	first := name()
	if again := name(); again != first {
		t.Errorf("%s became %s", first, again)
	}
	for _, text := range []string{"", " \n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fresh := name()
		if again := name(); again != fresh || fresh == first {
			t.Errorf("an empty file gives %s and %s, after %s", fresh, again, first)
		}
	}
	if err := os.WriteFile(file, []byte("kept by hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := WorkerName(folder); name != host+"-kept by hand" || err != nil {
		t.Errorf("the name is %q, %v", name, err)
	}
	if _, err := WorkerName(filepath.Join(folder, "none")); err == nil || !strings.Contains(err.Error(), "name this worker") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := WorkerName(folder); err == nil || !strings.Contains(err.Error(), "name this worker") {
		t.Errorf("a name that cannot be read: %v", err)
	}
}

// distantLeases is a store of leases behind a network: a call takes a while, whatever its size.
type distantLeases struct {
	*workerView
	calls atomic.Int64
}

func (l *distantLeases) Traits() sink.Traits {
	traits := l.workerView.Traits()
	traits.Leases = l
	return traits
}

func (l *distantLeases) AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) ([]string, error) {
	l.calls.Add(1)
	sleep(ctx, time.Millisecond)
	return l.workerView.AcquireLeases(ctx, partitions, worker, d)
}

func (l *distantLeases) ReleaseLeases(ctx context.Context, partitions []string, worker string) error {
	l.calls.Add(1)
	sleep(ctx, time.Millisecond)
	return l.workerView.ReleaseLeases(ctx, partitions, worker)
}

// One worker keeps the leases of 10,000 partitions with a few calls a round, notices the ones
// that it loses, and takes them back once they are free.
func TestThousandsOfLeases(t *testing.T) {
	const lost = 10
	count := 10_000
	if testing.Short() {
		count = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		var partitions []*memoryPartition
		for i := range count {
			partitions = append(partitions, newMemoryPartition(fmt.Sprint("partition ", i), 0))
		}
		q, to := newMemorySource(partitions...), newSharedSink()
		q.onRead = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		leases := &distantLeases{workerView: newWorkerView(to)}
		w := &testWorker{view: leases.workerView}
		w.harness = newHarness(t, q, testScript{main: passThrough}, leases)
		w.config.Worker = "worker"
		w.Pipeline = New(w.config)
		var ctx context.Context
		ctx, w.kill = context.WithCancel(t.Context())
		w.ended = w.start(ctx)

		expectCounts(t, "after the start", countHeld(t, 15*time.Second, []*testWorker{w}), count)
		before := leases.calls.Load()
		expectCounts(t, "a minute later", countHeld(t, time.Minute, []*testWorker{w}), count)
		if calls := leases.calls.Load() - before; calls > 60 {
			t.Errorf("%d calls in a minute to renew %d leases every %v, want at most 60", calls, count, DefaultLease/3)
		}
		if opens := int(leases.opens.Load()); opens != count {
			t.Errorf("partitions were opened %d times, want %d", opens, count)
		}
		for i := range lost {
			to.give(partitions[i*count/lost].name, "another", 2*DefaultLease)
		}
		expectCounts(t, "some are lost", countHeld(t, DefaultLease, []*testWorker{w}), count-lost)
		expectCounts(t, "they are free again", countHeld(t, 2*DefaultLease, []*testWorker{w}), count)
		drainWorkers(t, w)
	})
}
