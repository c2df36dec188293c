package sinktest

import (
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
	t    *trial
	name string
}

// worker makes one for pipeline with a sink of its own. The test is skipped
// where the kind keeps no leases.
func (t *trial) worker(pipeline, name string) *worker {
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

// lease asks for the partition and fails the test unless holder has it then.
func (w *worker) lease(partition string, d time.Duration, holder *worker) {
	w.t.Helper()
	got, err := w.AcquireLease(w.t.ctx, partition, w.name, d)
	if err != nil {
		w.t.Fatalf("worker %s asks for %s: %v", w.name, partition, err)
	}
	if got != holder.name {
		w.t.Fatalf("worker %s asks for %s and is told that %q holds it, want %q", w.name, partition, got, holder.name)
	}
}

// await asks for the partition until the worker holds it.
func (w *worker) await(partition string, d time.Duration) {
	w.t.Helper()
	for {
		got, err := w.AcquireLease(w.t.ctx, partition, w.name, d)
		if err != nil {
			w.t.Fatalf("worker %s waits for %s: %v", w.name, partition, err)
		}
		if got == w.name {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *worker) release(partition string) {
	w.t.Helper()
	if err := w.ReleaseLease(w.t.ctx, partition, w.name); err != nil {
		w.t.Fatalf("worker %s gives %s up: %v", w.name, partition, err)
	}
}

// alive says that the worker lives for d, and how many that should make.
func (w *worker) alive(d time.Duration, want int) {
	w.t.Helper()
	n, err := w.Heartbeat(w.t.ctx, w.name, d)
	if err != nil {
		w.t.Fatalf("worker %s is alive for %v: %v", w.name, d, err)
	}
	if n != want {
		w.t.Fatalf("worker %s is alive for %v and is told of %d workers, want %d", w.name, d, n, want)
	}
}

func leaseIsExclusive(t *trial) {
	one, two := t.worker("p", "one"), t.worker("p", "two")
	one.lease("a", longLease, one)
	two.lease("a", longLease, one)
	one.lease("a", longLease, one)
	two.lease("b", longLease, two)
	one.lease("b", longLease, two)
}

func leaseIsReleased(t *trial) {
	one, two := t.worker("p", "one"), t.worker("p", "two")
	one.release("a") // it has none
	one.lease("a", longLease, one)
	two.release("a") // it is not two's
	two.lease("a", longLease, one)
	one.release("a")
	two.lease("a", longLease, two)
	one.release("a")
	one.lease("a", longLease, two)
}

// leaseRunsOut checks that a lease lasts as long as was asked for and that
// afterwards anybody can have it.
func leaseRunsOut(t *trial) {
	one, two := t.worker("p", "one"), t.worker("p", "two")
	began := time.Now()
	one.lease("a", shortLease, one)
	two.await("a", longLease)
	if lasted := time.Since(began); lasted < shortLease-time.Millisecond {
		t.Errorf("a lease of %v ran out after %v", shortLease, lasted)
	}
	one.lease("a", longLease, two)

	one.lease("b", shortLease, one)
	time.Sleep(shortLease + shortLease/2)
	one.lease("b", longLease, one) // nobody has taken it
	two.lease("b", longLease, one)
}

func leaseIsRenewed(t *trial) {
	one, two := t.worker("p", "one"), t.worker("p", "two")
	one.lease("a", shortLease, one)
	one.lease("a", longLease, one)
	time.Sleep(shortLease + shortLease/2)
	two.lease("a", longLease, one)

	// A renewal counts from now, also when it shortens.
	one.lease("a", shortLease, one)
	two.await("a", longLease)
}

// leaseIsContended lets many ask at once: all of them are told of the same holder.
func leaseIsContended(t *trial) {
	const workers, partitions = 6, 8
	var crew []*worker
	for i := range workers {
		crew = append(crew, t.worker("p", string(rune('a'+i))))
	}
	var holders [partitions][workers]string
	var group sync.WaitGroup
	for i, w := range crew {
		group.Go(func() {
			for p := range partitions {
				holder, err := w.AcquireLease(t.ctx, string(rune('A'+p)), w.name, longLease)
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

func leasesDoNotMix(t *trial) {
	one, other := t.worker("p", "one"), t.worker("q", "other")
	two := t.worker("p", "two")
	one.lease("a", longLease, one)
	other.lease("a", longLease, other)
	two.lease("A", longLease, two)
	two.lease("a ", longLease, two)
	two.lease("a", longLease, one)
	// Names are as long as those of hosts, and differ in their last byte.
	long := strings.Repeat("host.example-", 10)
	first, second := t.worker("p", long+"1"), t.worker("p", long+"2")
	first.lease("c", longLease, first)
	second.lease("c", longLease, first)
}

// leaseLeavesRangesAlone: a lease says who should work, and opening alone fences.
func leaseLeavesRangesAlone(t *trial) {
	one, two := t.worker("p", "one"), t.worker("p", "two")
	one.lease("a", shortLease, one)
	w := t.open("p", "a")
	w.write(0, 10)
	two.await("a", longLease)
	two.release("a")
	one.lease("a", longLease, one)
	w.write(10, 10)
	one.release("a")
	t.landed(positions(span(0, 20)))
	t.committed("a", positions(span(0, 20)))
}

func aliveCounts(t *trial) {
	one, two, other := t.worker("p", "one"), t.worker("p", "two"), t.worker("q", "other")
	one.alive(longLease, 1)
	one.alive(longLease, 1)
	two.alive(longLease, 2)
	other.alive(longLease, 1)
	one.alive(longLease, 2)
	two.alive(0, 1)
	two.alive(0, 1)
	one.alive(longLease, 1)
	two.alive(longLease, 2)

	// Who says nothing any more is not counted.
	two.alive(shortLease, 2)
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
	one.alive(0, 0)
}

// aliveAtOnce lets many say so at once: the last to be told knows of all.
func aliveAtOnce(t *trial) {
	const workers = 6
	var crew []*worker
	for i := range workers {
		crew = append(crew, t.worker("p", string(rune('a'+i))))
	}
	var group sync.WaitGroup
	for _, w := range crew {
		group.Go(func() {
			if _, err := w.Heartbeat(t.ctx, w.name, longLease); err != nil {
				t.Errorf("worker %s: %v", w.name, err)
			}
		})
	}
	group.Wait()
	crew[0].alive(longLease, workers)
}
