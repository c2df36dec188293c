package sinktest

import (
	"errors"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

func takeoverFences(t *testEnv) {
	old := t.openWriter("p", "a")
	old.write(0, 10)
	fresh := t.openWriter("p", "a")
	if !fresh.committed.Covers(0, 10) {
		t.Errorf("the new owner is told %v, want [0,10)", fresh.committed)
	}
	for range 2 {
		if err := old.Write(t.ctx, old.makeEvents(10, 10)); !errors.Is(err, sink.ErrFenced) {
			t.Fatalf("the old owner's write returned %v, want ErrFenced", err)
		}
	}
	if err := old.Write(t.ctx, old.makeOutput(rangeAt(20, 5), nil, nil)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the old owner's output without rows returned %v, want ErrFenced", err)
	}
	t.expectRows(rangesOf(rangeAt(0, 10)))
	fresh.write(10, 10)
	t.expectRows(rangesOf(rangeAt(0, 20)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 20)))
}

// takeoverDuringWrites takes over from a writer whose lanes are busy, and some of whose
// writes are acknowledged: whatever they were told is durable is what the new owner hears of.
func takeoverDuringWrites(t *testEnv) {
	const lanes, size = 4, 50
	for round := range uint64(5) {
		old := t.openWriter("p", "a")
		var (
			mu    sync.Mutex
			acked event.Ranges
			group sync.WaitGroup
		)
		writes := make(chan error, lanes) // of each lane, how its first write ended
		base := round * 1_000_000
		for lane := range uint64(lanes) {
			group.Go(func() {
				for i := uint64(0); ; i++ {
					first := base + (i*lanes+lane)*size
					err := old.Write(t.ctx, old.makeEvents(first, size))
					if i == 0 {
						writes <- err
					}
					if errors.Is(err, sink.ErrFenced) {
						return
					}
					if err != nil {
						t.Errorf("lane %d: %v, want success or ErrFenced", lane, err)
						return
					}
					mu.Lock()
					acked.Add(rangeAt(first, size))
					mu.Unlock()
				}
			})
		}
		if err := <-writes; err != nil {
			t.Errorf("a write before the takeover: %v", err)
		}
		time.Sleep(time.Duration(3*round) * time.Millisecond)
		fresh := t.openWriter("p", "a")
		group.Wait()
		if len(acked) == 0 {
			t.Error("the old owner was told of no write that it is durable")
		}
		for _, r := range acked {
			if !fresh.committed.Covers(r.First, r.End()) {
				t.Errorf("the old owner was told that %v is durable, the new owner is told %v", r, fresh.committed)
			}
		}
		t.expectRows(fresh.committed)
	}
}

func takeoverInsideTransaction(t *testEnv) {
	if t.place.Stall == nil {
		t.Skip("no way to hold a write inside its transaction")
	}
	old := t.openWriter("p", "a")
	old.write(0, 10)
	hanging, release := t.place.Stall(t.T)
	result := make(chan error, 1)
	go func() { result <- old.Write(t.ctx, old.makeEvents(10, 10)) }()
	hanging()
	fresh := t.openWriter("p", "a")
	release()
	if err := <-result; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a write that was inside its transaction returned %v, want ErrFenced", err)
	}
	if fresh.committed.Has(10) {
		t.Errorf("the new owner is told %v, but [10,20) was not committed", fresh.committed)
	}
	t.expectRows(rangesOf(rangeAt(0, 10)))
	fresh.write(10, 10)
	t.expectRows(rangesOf(rangeAt(0, 20)))
	t.expectCommitted("a", rangesOf(rangeAt(0, 20)))
}
