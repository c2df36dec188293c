package pipeline

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/sink"
)

// orderedSink is a sink that must be written in order.
type orderedSink struct{ *memorySink }

func (orderedSink) Traits() sink.Traits { return sink.Traits{} }

// TestOrder lets scripts take their time, writes fail and limits cut batches:
// rows land in the order of their positions all the same.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chaos{rng: rand.New(rand.NewPCG(1, 4))}
		shelf, to := newMemoryPartition("a", 600), orderedSink{newMemorySink()}
		to.beforeCommit, to.afterCommit = c.hook("begin", 10), c.hook("commit", 10)
		prog := testScript{main: passThrough, limit: func(n int) int {
			time.Sleep(time.Duration(c.below(5000)) * time.Microsecond)
			if c.hit(5) {
				return c.below(n)
			}
			return n
		}}
		r := newHarness(t, newMemorySource(shelf), prog, to)
		ended := r.start(context.Background())
		for len(ended) == 0 {
			time.Sleep(100 * time.Millisecond)
			if err := r.Resume(); err != nil { // three limits in a row have paused it
				t.Fatal(err)
			}
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(shelf.docs, to.allRows()) {
			t.Errorf("%d rows are not in order, or not all there", len(to.allRows()))
		}
	})
}
