//go:build cgo

package luajit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestEnginesWait gives one leave to make an engine to those that wait, in their
// order, and past those that wait no more.
func TestEnginesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := engines{spares: 1}
		if _, err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		gone, cancel := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{t.Context(), gone, t.Context()} {
			go func() {
				if _, err := p.take(ctx); err == nil {
					order <- i
				} else if i != 1 || !errors.Is(err, context.Canceled) {
					t.Errorf("waiter %d: %v", i, err)
				}
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		for _, want := range []int{0, 2} {
			p.give(nil)
			if got := <-order; got != want {
				t.Errorf("waiter %d was served, want %d", got, want)
			}
		}
		p.give(nil)
		if p.spares != 1 || len(p.waiting) != 0 {
			t.Errorf("left are %d to make and %d waiting", p.spares, len(p.waiting))
		}
		if _, err := p.take(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context got %v", err)
		}
	})
}
