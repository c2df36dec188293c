package pipeline

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/source"
)

// growingSource is a source that may have more partitions later.
type growingSource struct{ *memorySource }

func (growingSource) Traits() source.Traits { return source.Traits{Growing: true} }

func (g growingSource) remove(name string) { g.set(name, true) }
func (g growingSource) bring(name string)  { g.set(name, false) }

func (g growingSource) set(name string, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.partitions {
		if s.name == name {
			s.gone = gone
		}
	}
}

func TestPartitionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, to := growingSource{newMemorySource()}, newMemorySink()
		r := newHarness(t, src, testScript{main: passThrough}, to)
		ended := r.start(t.Context())
		total := 0
		for i := range 5 {
			time.Sleep(10 * time.Second)
			if s := r.Stats(); len(to.allRows()) != total || s.State != Running || s.OpenPartitions != 0 {
				t.Errorf("round %d: %d rows of %d, state %s, %d open", i, len(to.allRows()), total, s.State, s.OpenPartitions)
			}
			src.add(newMemoryPartition(fmt.Sprint(i), 10+i))
			total += 10 + i
		}
		time.Sleep(2 * listInterval)

		// A partition that disappears and reappears is opened again.
		opens := to.opened("0")
		src.remove("0")
		time.Sleep(2 * listInterval)
		src.bring("0")
		time.Sleep(2 * listInterval)
		if to.opened("0") != opens+1 || len(to.allRows()) != total {
			t.Errorf("opened %d times, %d rows of %d", to.opened("0"), len(to.allRows()), total)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A partition that appears while the last one ends is read too.
func TestPartitionAppearsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newMemorySource(newMemoryPartition("a", 10)), newMemorySink()
		q.atEnd = func(q *memorySource, s *memoryPartition) error {
			if s.name == "a" {
				q.partitions = append(q.partitions[:1], newMemoryPartition("b", 10)) // its lock is held
			}
			return io.EOF
		}
		r := newHarness(t, q, testScript{main: passThrough}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(to.allRows()); n != 20 {
			t.Errorf("%d rows", n)
		}
	})
}

// A slow listing does not delay open partitions.
func TestListingTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newEndlessSource(newMemoryPartition("a", 0)), newMemorySink()
		var asked atomic.Int64
		q.onPartitions = func(ctx context.Context) error {
			if asked.Add(1) > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r := newHarness(t, q, testScript{main: passThrough}, to)
		ended := r.start(t.Context())
		time.Sleep(3 * time.Second)
		before := len(to.allRows())
		time.Sleep(time.Second)
		if s := r.Stats(); len(to.allRows()) == before || s.State != Running || asked.Load() != 2 {
			t.Errorf("%d rows and %d before, state %s, asked %d times", len(to.allRows()), before, s.State, asked.Load())
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
