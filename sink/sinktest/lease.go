package sinktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/sink"
)

const (
	longLease  = time.Minute            // outlasts a test
	shortLease = 300 * time.Millisecond // runs out within one
)

// A worker is one process that asks for leases.
type worker struct {
	sink.LeaseStore
	t    *testEnv
	name string
}

// newWorker makes one for pipeline with a sink of its own. The test is skipped
// where the kind keeps no leases.
func (t *testEnv) newWorker(pipeline, name string) *worker {
	t.Helper()
	s := t.place.Sink(t.T, pipeline)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
	leases := s.Traits().Leases
	if leases == nil {
		t.Skip("the kind keeps no leases")
	}
	return &worker{leases, t, name}
}

// askFor asks for one partition and returns its holder.
func (w *worker) askFor(partition string, d time.Duration) (holder string, err error) {
	holders, err := w.AcquireLeases(w.t.ctx, []string{partition}, w.name, d)
	if err != nil || len(holders) != 1 {
		return "", fmt.Errorf("%q, %w", holders, err)
	}
	return holders[0], nil
}

// acquire asks for the partition and fails the test unless holder has it then.
func (w *worker) acquire(partition string, d time.Duration, holder *worker) {
	w.t.Helper()
	got, err := w.askFor(partition, d)
	if err != nil {
		w.t.Fatalf("worker %s asks for %s: %v", w.name, partition, err)
	}
	if got != holder.name {
		w.t.Fatalf("worker %s asks for %s and is told that %q holds it, want %q", w.name, partition, got, holder.name)
	}
}

// awaitLease asks for the partition until the worker holds it.
func (w *worker) awaitLease(partition string, d time.Duration) {
	w.t.Helper()
	for {
		got, err := w.askFor(partition, d)
		if err != nil {
			w.t.Fatalf("worker %s waits for %s: %v", w.name, partition, err)
		}
		if got == w.name {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *worker) releaseLease(partition string) {
	w.t.Helper()
	if err := w.ReleaseLeases(w.t.ctx, []string{partition}, w.name); err != nil {
		w.t.Fatalf("worker %s gives %s up: %v", w.name, partition, err)
	}
}

// expectWorkers says that the worker lives for d, and how many that should make.
func (w *worker) expectWorkers(d time.Duration, want int) {
	w.t.Helper()
	n, err := w.Heartbeat(w.t.ctx, w.name, d)
	if err != nil {
		w.t.Fatalf("worker %s is alive for %v: %v", w.name, d, err)
	}
	if n != want {
		w.t.Fatalf("worker %s is alive for %v and is told of %d workers, want %d", w.name, d, n, want)
	}
}

func leaseIsExclusive(t *testEnv) {
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	one.acquire("a", longLease, one)
	two.acquire("a", longLease, one)
	one.acquire("a", longLease, one)
	two.acquire("b", longLease, two)
	one.acquire("b", longLease, two)
}

func leaseIsReleased(t *testEnv) {
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	one.releaseLease("a") // it has none
	one.acquire("a", longLease, one)
	two.releaseLease("a") // it is not two's
	two.acquire("a", longLease, one)
	one.releaseLease("a")
	two.acquire("a", longLease, two)
	one.releaseLease("a")
	one.acquire("a", longLease, two)
}

// leaseExpires checks that a lease lasts as long as was asked for and that
// afterwards anybody can have it.
func leaseExpires(t *testEnv) {
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	began := time.Now()
	one.acquire("a", shortLease, one)
	two.awaitLease("a", longLease)
	if lasted := time.Since(began); lasted < shortLease-time.Millisecond {
		t.Errorf("a lease of %v ran out after %v", shortLease, lasted)
	}
	one.acquire("a", longLease, two)

	one.acquire("b", shortLease, one)
	time.Sleep(shortLease + shortLease/2)
	one.acquire("b", longLease, one) // it is still free
	two.acquire("b", longLease, one)
}

func leaseIsRenewed(t *testEnv) {
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	one.acquire("a", shortLease, one)
	one.acquire("a", longLease, one)
	time.Sleep(shortLease + shortLease/2)
	two.acquire("a", longLease, one)

	// A renewal counts from now, also when it shortens.
	one.acquire("a", shortLease, one)
	two.awaitLease("a", longLease)
}

// leaseIsContended lets many ask at once: all of them are told of the same holder.
func leaseIsContended(t *testEnv) {
	const workers, partitions = 6, 8
	var all []*worker
	for i := range workers {
		all = append(all, t.newWorker("p", string(rune('a'+i))))
	}
	var holders [partitions][workers]string
	var group sync.WaitGroup
	for i, w := range all {
		group.Go(func() {
			for p := range partitions {
				holder, err := w.askFor(string(rune('A'+p)), longLease)
				if err != nil {
					t.Errorf("worker %s: %v", w.name, err)
				}
				holders[p][i] = holder
			}
		})
	}
	group.Wait()
	for p, told := range holders {
		for i := range told {
			if told[i] == "" || told[i] != told[0] {
				t.Fatalf("the holder of partition %d is %q", p, told)
			}
		}
	}
}

// renewalMax is how long it may take to renew thousands of leases that last 10 seconds, as they
// do by default: a worker does so every third of that.
const renewalMax = 10 * time.Second / 3

// acquireAll asks for partitions and fails the test unless each has the holder that want names.
func (w *worker) acquireAll(partitions []string, want func(i int) *worker) (took time.Duration) {
	w.t.Helper()
	began := time.Now()
	holders, err := w.AcquireLeases(w.t.ctx, partitions, w.name, longLease)
	took = time.Since(began)
	if err != nil || len(holders) != len(partitions) {
		w.t.Fatalf("worker %s asks for %d partitions and is told of %d holders: %v", w.name, len(partitions), len(holders), err)
	}
	for i, holder := range holders {
		if holder != want(i).name {
			w.t.Fatalf("worker %s asks for %s among %d and is told that %q holds it, want %q", w.name, partitions[i], len(partitions), holder, want(i).name)
		}
	}
	return took
}

// thousandsOfLeases renews all leases of a worker that has many in time, and reports the holder of
// each.
func thousandsOfLeases(t *testEnv) {
	const count, every = 10_000, 1000
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	var partitions, released []string
	for i := range count {
		partitions = append(partitions, fmt.Sprintf("list:%d:'%c'", i, 'a'+i%26))
		if i%every == 7 {
			released = append(released, partitions[i])
		}
	}
	ones := func(int) *worker { return one }
	acquired := one.acquireAll(partitions, ones)
	renewed := one.acquireAll(partitions, ones)
	for range 2 { // a busy machine may be late
		renewed = min(renewed, one.acquireAll(partitions, ones))
	}
	t.Logf("%d leases: acquired in %v, renewed in %v", count, acquired, renewed)
	if renewed > renewalMax {
		t.Errorf("renewing %d leases took %v, want at most %v", count, renewed, renewalMax)
	}
	two.acquireAll(partitions, ones)
	if err := one.ReleaseLeases(t.ctx, released, one.name); err != nil {
		t.Fatal(err)
	}
	two.acquireAll(released, func(int) *worker { return two })
	one.acquireAll(partitions, func(i int) *worker {
		if i%every == 7 {
			return two
		}
		return one
	})
	began := time.Now()
	if err := one.ReleaseLeases(t.ctx, partitions, one.name); err != nil { // some are not one's
		t.Fatal(err)
	}
	t.Logf("released in %v", time.Since(began))
	two.acquireAll(partitions, func(int) *worker { return two })
	one.acquireAll(nil, nil)
}

// thousandsAreContended lets workers ask for the same partitions at once, each in an order of
// its own, while their leases expire.
func thousandsAreContended(t *testEnv) {
	const workers, count, rounds = 4, 1500, 6
	var partitions []string
	for i := range count {
		partitions = append(partitions, fmt.Sprint("list ", i))
	}
	var all []*worker
	for i := range workers {
		all = append(all, t.newWorker("p", string(rune('a'+i))))
	}
	told := make([]map[string]string, workers)
	for round := range rounds {
		lease := time.Millisecond
		if round == rounds-1 {
			// A short lease that still holds may be told to one worker, and have ended when the
			// next one asks.
			time.Sleep(100 * time.Millisecond)
			lease = longLease
		}
		var group sync.WaitGroup
		for i, w := range all {
			mine := slices.Clone(partitions)
			rand.Shuffle(count, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			group.Go(func() {
				holders, err := w.AcquireLeases(t.ctx, mine, w.name, lease)
				if err != nil || len(holders) != count {
					t.Errorf("worker %s: %d holders, %v", w.name, len(holders), err)
					return
				}
				told[i] = map[string]string{}
				for j, holder := range holders {
					told[i][mine[j]] = holder
				}
			})
		}
		group.Wait()
	}
	for _, partition := range partitions {
		for i := range told {
			if told[i][partition] == "" || told[i][partition] != told[0][partition] {
				t.Fatalf("the holder of %s is %q to worker %s, and %q to worker %s", partition, told[i][partition], all[i].name, told[0][partition], all[0].name)
			}
		}
	}
}

func leasesDoNotMix(t *testEnv) {
	one, other := t.newWorker("p", "one"), t.newWorker("q", "other")
	two := t.newWorker("p", "two")
	one.acquire("a", longLease, one)
	other.acquire("a", longLease, other)
	two.acquire("A", longLease, two)
	two.acquire("a ", longLease, two)
	two.acquire("a", longLease, one)
	// Names are as long as those of hosts, and differ in their last byte.
	long := strings.Repeat("host.example-", 10)
	first, second := t.newWorker("p", long+"1"), t.newWorker("p", long+"2")
	first.acquire("c", longLease, first)
	second.acquire("c", longLease, first)
}

// leaseLeavesRangesAlone: a lease decides which worker should work; only opening fences.
func leaseLeavesRangesAlone(t *testEnv) {
	one, two := t.newWorker("p", "one"), t.newWorker("p", "two")
	one.acquire("a", shortLease, one)
	w := t.openWriter("p", "a")
	w.write(0, 10)
	two.awaitLease("a", longLease)
	two.releaseLease("a")
	one.acquire("a", longLease, one)
	w.write(10, 10)
	one.releaseLease("a")
	t.expectRows(rangesOf(rangeAt(0, 20)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 20)))
}

func heartbeatCounts(t *testEnv) {
	one, two, other := t.newWorker("p", "one"), t.newWorker("p", "two"), t.newWorker("q", "other")
	one.expectWorkers(longLease, 1)
	one.expectWorkers(longLease, 1)
	two.expectWorkers(longLease, 2)
	other.expectWorkers(longLease, 1)
	one.expectWorkers(longLease, 2)
	two.expectWorkers(0, 1)
	two.expectWorkers(0, 1)
	one.expectWorkers(longLease, 1)
	two.expectWorkers(longLease, 2)

	// A worker without heartbeats is not counted. On a busy machine a heartbeat may already be
	// late when the next call counts it.
	for said := false; !said; {
		began := time.Now()
		n, err := two.Heartbeat(t.ctx, two.name, shortLease)
		if said = n == 2; err != nil || !said && time.Since(began) < shortLease {
			t.Fatalf("%d workers, %v", n, err)
		}
	}
	for {
		n, err := one.Heartbeat(t.ctx, one.name, longLease)
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	one.expectWorkers(0, 0)
}

// heartbeatsAtOnce lets many say so at once: the last to be told knows of all.
func heartbeatsAtOnce(t *testEnv) {
	const workers = 6
	var all []*worker
	for i := range workers {
		all = append(all, t.newWorker("p", string(rune('a'+i))))
	}
	var group sync.WaitGroup
	for _, w := range all {
		group.Go(func() {
			if _, err := w.Heartbeat(t.ctx, w.name, longLease); err != nil {
				t.Errorf("worker %s: %v", w.name, err)
			}
		})
	}
	group.Wait()
	all[0].expectWorkers(longLease, workers)
}
