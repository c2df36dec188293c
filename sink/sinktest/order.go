package sinktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/sink"
)

// lanesKeepOrder writes batches as a pipeline with several lanes does: lanes take
// batches in the source's order and are done with them in another. Those of a sink
// that is not AnyOrder then wait for their turn.
func lanesKeepOrder(t *testEnv) {
	if !t.place.Ordered {
		t.Skip("readers of the place see no order")
	}
	const lanes, batches, size = 4, 40, 23
	w := t.openWriter("p", "a")
	if w.order == sink.AnyOrder {
		t.Error("readers of the place see the order of commits, but the sink's Order is AnyOrder")
	}
	seed := testseed.Seed(t)
	turns := make([]chan struct{}, batches+1)
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	close(turns[0])
	var group sync.WaitGroup
	next := make(chan uint64)
	for lane := range uint64(lanes) {
		random := rand.New(rand.NewPCG(seed, lane))
		group.Go(func() {
			for batch := range next {
				out := w.makeEvents(batch*size, size)
				time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
				if w.order != sink.AnyOrder {
					<-turns[batch]
				}
				if err := w.writeTwice(t.ctx, out, batch%5 == 4); err != nil {
					t.Errorf("batch %d: %v", batch, err)
				}
				close(turns[batch+1])
			}
		})
	}
	for batch := range uint64(batches) {
		next <- batch
	}
	close(next)
	group.Wait()

	t.expectRows(rangesOf(rangeAt(0, batches*size)))
	seen := int64(-1)
	for _, row := range t.place.Rows(t.T) {
		if row.ID > seen+1 {
			t.Fatalf("event %d comes before event %d", row.ID, seen+1)
		}
		seen = max(seen, row.ID) // a sink at least once may repeat earlier ones
	}
}

// writeTwice writes out, after an attempt that is cut off if the test says so.
func (h *testWriter) writeTwice(ctx context.Context, out *event.Output, cutOff bool) error {
	if cutOff {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		err := h.Write(short, out)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) { // nil, or another error
			return err
		}
	}
	return h.Write(ctx, out)
}
