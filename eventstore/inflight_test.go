//go:build linux && cgo

package eventstore

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// isAwaited reports whether a caller waits for appends.
func (f *inFlight) isAwaited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running) > 1
}

// TestAppendsDoNotWait checks that new appends begin and end while a caller waits for running
// ones, and that every waiter waits for all of those.
func TestAppendsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a inFlight
		a.wait()
		first := a.begin()
		var waited atomic.Int32
		for range 2 {
			go func() {
				a.wait()
				waited.Add(1)
			}()
		}
		synctest.Wait()
		a.begin()()
		synctest.Wait()
		if n := waited.Load(); n != 0 {
			t.Errorf("%d of 2 waits ended before the first append, want none", n)
		}
		first()
		synctest.Wait()
		if n := waited.Load(); n != 2 {
			t.Errorf("after the append: %d of 2 waits ended, want both", n)
		}
	})
}

// TestManyWaits checks that a wait needs no more memory after many earlier ones.
func TestManyWaits(t *testing.T) {
	var a inFlight
	const waits, bytesMax = 10_000, 1 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range waits {
		a.begin()()
		a.wait()
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / waits; got > bytesMax {
		t.Errorf("got %d bytes of memory for each wait, want at most %d", got, bytesMax)
	}
}
