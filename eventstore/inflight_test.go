//go:build linux && cgo

package eventstore

import (
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
			t.Errorf("%d of 2 did not wait for the first append", n)
		}
		first()
		synctest.Wait()
		if n := waited.Load(); n != 2 {
			t.Errorf("%d of 2 have ended", n)
		}
		if len(a.running) != 1 {
			t.Errorf("%d groups are left", len(a.running))
		}
	})
}
