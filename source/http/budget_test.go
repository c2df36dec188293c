package http

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCostliest: room is made by the body that has held the most for the longest time, if it is old
// enough and has anything to give.
func TestCostliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		empty, small := b.open(nil), b.open(nil)
		if _, ok := small.take(10); !ok {
			t.Fatal("no room for the first body")
		}
		time.Sleep(evictAfter)
		if got := b.costliest(); got != nil {
			t.Errorf("a body makes room at the age of %v", evictAfter)
		}
		time.Sleep(time.Nanosecond)
		if got := b.costliest(); got != small {
			t.Errorf("%v makes room, want the only body that has bytes", got)
		}
		large := b.open(nil)
		if _, ok := large.take(90); !ok {
			t.Fatal("no room for the second body")
		}
		time.Sleep(2 * evictAfter)
		if got := b.costliest(); got != large {
			t.Errorf("%v makes room, want the largest", got)
		}
		for _, s := range []*share{small, large} {
			s.close()
			s.close()
		}
		if got := b.costliest(); b.free != 100 || got != nil {
			t.Errorf("%d bytes are free, and %v makes room", b.free, got)
		}
		empty.close()
	})
}
