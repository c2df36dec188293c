package pipeline

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/source"
)

// calmRun is the number of the run without faults, which is the last.
const calmRun = 30

// chaos makes the doubles slow and lets them fail at random. It is safe for concurrent
// use.
type chaos struct {
	mu   sync.Mutex
	rng  *rand.Rand
	calm bool
}

func (c *chaos) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// hit returns true in one of n cases, and never if c is calm.
func (c *chaos) hit(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.calm && c.rng.IntN(n) == 0
}

// hook waits up to 4 ms and fails one time in n. Half of the waits ignore the end of
// the context, like a server that has the request already.
func (c *chaos) hook(what string, n int) hook {
	return func(ctx context.Context) error {
		d := time.Duration(c.below(4000)) * time.Microsecond
		if c.hit(2) {
			time.Sleep(d)
		} else if !sleep(ctx, d) {
			return ctx.Err()
		}
		if c.hit(n) {
			return fmt.Errorf("%s: connection lost", what)
		}
		return nil
	}
}

// outcomeOf returns the result of an event in a run. It differs from run to run, as
// after a change of the script, so that a mixture of two runs is found.
func outcomeOf(seed uint64, run int, doc string) (rows []string, err error) {
	h := fnv.New64a()
	fmt.Fprint(h, seed, run, doc)
	row := func(n int, kind string) string { return fmt.Sprintf("%s#%d by %d %s", doc, n, run, kind) }
	switch h.Sum64() % 12 {
	case 0:
		return nil, nil
	case 1:
		return nil, fmt.Errorf("refused by run %d", run)
	case 2:
		return []string{row(0, "bad")}, nil
	case 3:
		return []string{row(0, "good"), row(1, "bad"), row(2, "good"), row(3, "bad")}, nil
	case 4:
		return []string{row(0, "good"), row(1, "good")}, nil
	}
	return []string{row(0, "good")}, nil
}

// generations returns a source whose second list appears when the first has moved.
func generations(c *chaos) *memorySource {
	old, next := newMemoryPartition("list 1", 150), newMemoryPartition("list 2", 150)
	next.gone = true
	q := newMemorySource(old, next, newMemoryPartition("other", 300))
	q.batch = func() int { return 1 + c.below(25) }
	q.onPartitions = c.hook("partitions", 4)
	q.onOpen = c.hook("open", 4)
	q.onRead = c.hook("read", 20)
	q.onAck = c.hook("ack", 20)
	q.atEnd = func(q *memorySource, s *memoryPartition) error {
		if s == old {
			return source.ErrMoved
		}
		return io.EOF
	}
	// A list disappears when all its events are acknowledged.
	partitions := q.onPartitions
	q.onPartitions = func(ctx context.Context) error {
		q.mu.Lock()
		if old.acked.Covers(0, uint64(len(old.docs))) {
			old.gone, next.gone = true, false
		}
		q.mu.Unlock()
		return partitions(ctx)
	}
	return q
}

// TestChaos interrupts a pipeline at random, with a source and a sink that fail at
// random and a script that changes, and restarts it on what is durable. At the end
// each event was committed by one run, and rows and dead letters are exactly those of
// that run.
func TestChaos(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testChaos(t, seed) })
		})
	}
}

func testChaos(t *testing.T, seed uint64) {
	c := &chaos{rng: rand.New(rand.NewPCG(seed, 1))}
	q, to := generations(c), newMemorySink()
	to.onOpen = c.hook("open", 4)
	to.beforeCommit = c.hook("begin", 10)
	to.afterCommit = c.hook("commit", 10)

	prog := testScript{limit: func(n int) int {
		if c.hit(150) {
			panic("script")
		}
		if c.hit(15) {
			return c.below(n)
		}
		return n
	}}
	prog.main = func(_ uint64, doc string) ([]string, error) { return outcomeOf(seed, to.run, doc) }
	r := newHarness(t, q, prog, to)

	for finished := false; !finished; {
		if to.run++; to.run > calmRun {
			t.Fatal("a run without faults does not exhaust the source")
		}
		c.calm = to.run == calmRun
		r.Pipeline = New(r.config)
		finished = chaoticRun(t, c, r.Pipeline, to)
	}
	checkChaos(t, seed, q, to, r)
}

// chaoticRun returns true if the source is exhausted.
func chaoticRun(t *testing.T, c *chaos, p *Pipeline, to *memorySink) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	drained := false
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for begun := time.Now(); ; {
		if time.Since(begun) > time.Hour {
			t.Fatalf("the run does not end: %+v", p.Stats())
		}
		select {
		case err := <-ended:
			return checkEnd(t, err, drained, ctx.Err() != nil)
		case <-time.After(time.Duration(c.below(200)) * time.Millisecond):
		}
		switch {
		case c.hit(4):
			cancel()
		case c.hit(4):
			drained = true
			p.Drain()
		case c.hit(3):
			to.takeOver("other")
		case c.hit(3):
			if err := p.Pause("a coffee"); err != nil {
				t.Fatal(err)
			}
		}
		if p.Paused() != nil && !c.hit(3) {
			if err := p.Resume(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func checkEnd(t *testing.T, err error, drained, cancelled bool) (finished bool) {
	switch {
	case err == nil:
		return !drained
	case cancelled && errors.Is(err, context.Canceled):
	case strings.Contains(err.Error(), "panic: script"):
	default:
		t.Fatalf("run ended with %v", err)
	}
	return false
}

func checkChaos(t *testing.T, seed uint64, q *memorySource, to *memorySink, r harness) {
	var wantRows, wantDead []string
	for _, s := range q.partitions {
		for i, doc := range s.docs {
			run, ok := to.ran[rowKey(s.name, uint64(i))]
			if !ok {
				t.Fatalf("%s was never committed", doc)
			}
			rows, err := outcomeOf(seed, run, doc)
			if err != nil {
				wantDead = append(wantDead, fmt.Sprintf("%s#0 script: %v: %s", doc, err, doc))
			}
			for n, row := range rows {
				if strings.HasSuffix(row, "bad") {
					wantDead = append(wantDead, fmt.Sprintf("%s#%d sink: bad row: %s", doc, n, doc))
				} else {
					wantRows = append(wantRows, row)
				}
			}
		}
		if !s.acked.Covers(0, uint64(len(s.docs))) {
			t.Errorf("%s is acknowledged only for %v", s.name, s.acked)
		}
	}
	var gotDead []string
	for _, l := range r.deadLetters(t) {
		gotDead = append(gotDead, fmt.Sprintf("%s#%d %s: %s: %s",
			rowKey(l.Partition, l.Position), l.Number, l.Stage, l.Error, l.Original))
	}
	expectSame(t, "rows", wantRows, to.allRows())
	expectSame(t, "dead letters", wantDead, gotDead)
}

// expectSame compares two lists whose order does not matter.
func expectSame(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
