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

// growing is a source that may have more partitions later.
type growing struct{ *queue }

func (growing) Traits() source.Traits { return source.Traits{Growing: true} }

func (g growing) remove(name string) { g.set(name, true) }
func (g growing) bring(name string)  { g.set(name, false) }

func (g growing) set(name string, gone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.shelves {
		if s.name == name {
			s.gone = gone
		}
	}
}

func TestPartitionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, to := growing{newQueue()}, newTable()
		r := newBench(t, src, program{main: pass}, to)
		ended := r.start(t.Context())
		total := 0
		for i := range 5 {
			time.Sleep(10 * time.Second)
			if s := r.Stats(); len(to.all()) != total || s.State != Running || s.OpenPartitions != 0 {
				t.Errorf("round %d: %d rows of %d, state %s, %d open", i, len(to.all()), total, s.State, s.OpenPartitions)
			}
			src.add(newShelf(fmt.Sprint(i), 10+i))
			total += 10 + i
		}
		time.Sleep(2 * askEvery)

		// One that is gone and comes back is opened again, and has nothing new.
		opens := to.opened("0")
		src.remove("0")
		time.Sleep(2 * askEvery)
		src.bring("0")
		time.Sleep(2 * askEvery)
		if to.opened("0") != opens+1 || len(to.all()) != total {
			t.Errorf("opened %d times, %d rows of %d", to.opened("0"), len(to.all()), total)
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A partition that appears while the last one ends is not overlooked.
func TestPartitionAppearsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := newQueue(newShelf("a", 10)), newTable()
		q.after = func(q *queue, s *shelf) error {
			if s.name == "a" {
				q.shelves = append(q.shelves[:1], newShelf("b", 10)) // its lock is held
			}
			return io.EOF
		}
		r := newBench(t, q, program{main: pass}, to)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(to.all()); n != 20 {
			t.Errorf("%d rows", n)
		}
	})
}

// A source that answers slowly does not hold up who is at work.
func TestAskingTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, to := endless(newShelf("a", 0)), newTable()
		var asked atomic.Int64
		q.onPartitions = func(ctx context.Context) error {
			if asked.Add(1) > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r := newBench(t, q, program{main: pass}, to)
		ended := r.start(t.Context())
		time.Sleep(3 * time.Second)
		before := len(to.all())
		time.Sleep(time.Second)
		if s := r.Stats(); len(to.all()) == before || s.State != Running || asked.Load() != 2 {
			t.Errorf("%d rows and %d before, state %s, asked %d times", len(to.all()), before, s.State, asked.Load())
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
