package pipeline

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/sink"
)

// orderedSink is a sink that must be written in order.
type orderedSink struct{ *memorySink }

func (orderedSink) Traits() sink.Traits { return sink.Traits{} }

// TestOrder lets scripts take their time, writes fail and limits cut batches. Rows
// are still committed in the order of their positions.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chaos{rng: rand.New(rand.NewPCG(1, 4))}
		partition, to := newMemoryPartition("a", 600), orderedSink{newMemorySink()}
		to.beforeCommit, to.afterCommit = c.hook("begin", 10), c.hook("commit", 10)
		prog := testScript{main: passThrough, limit: func(n int) int {
			time.Sleep(time.Duration(c.below(5000)) * time.Microsecond)
			if c.hit(5) {
				return c.below(n)
			}
			return n
		}}
		r := newHarness(t, newMemorySource(partition), prog, to)
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
		if !slices.Equal(partition.docs, to.allRows()) {
			t.Errorf("%d rows are out of order or incomplete", len(to.allRows()))
		}
	})
}

// TestScriptsRunInParallelWhileCommitsKeepOrder counts what runs at the same time: as
// many scripts as lanes, and one write.
func TestScriptsRunInParallelWhileCommitsKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches, scriptTime = 40, 100 * time.Millisecond
		var scripts, writes gauge
		partition, to := newMemoryPartition("a", batches*10), orderedSink{newMemorySink()}
		to.beforeCommit = func(context.Context) error { writes.add(1); time.Sleep(time.Millisecond); return nil }
		to.afterCommit = func(context.Context) error { writes.add(-1); return nil }
		prog := testScript{main: passThrough, limit: func(n int) int {
			scripts.add(1)
			time.Sleep(scriptTime)
			scripts.add(-1)
			return n
		}}
		r := newHarness(t, newMemorySource(partition), prog, to)
		began := time.Now()
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(partition.docs, to.allRows()) {
			t.Errorf("%d rows are out of order or incomplete", len(to.allRows()))
		}
		if scripts.most != DefaultLanes || writes.most != 1 {
			t.Errorf("%d scripts and %d writes ran at the same time", scripts.most, writes.most)
		}
		if took, want := time.Since(began), batches/DefaultLanes*scriptTime; took > want*3/2 {
			t.Errorf("took %v; %d lanes need %v", took, DefaultLanes, want)
		}
	})
}

// A gauge holds the highest sum of what was added.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}
