package pipeline

import (
	"context"
	"sync"
)

// A gate is open while a pipeline may read. It shuts for a time when the
// pipeline is paused, and for good when it is drained.
type gate struct {
	mu      sync.Mutex
	open    context.Context // ends when the gate shuts
	shut    context.CancelFunc
	changed chan struct{} // closed at the next change
	pause   *Pause
	drained bool
}

func newGate() *gate {
	g := &gate{changed: make(chan struct{})}
	g.open, g.shut = context.WithCancel(context.Background())
	return g
}

func (g *gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) stop(pause Pause) {
	g.change(func() {
		g.pause = &pause
		g.shut()
	})
}

func (g *gate) resume() {
	g.change(func() {
		if g.pause != nil && !g.drained {
			g.open, g.shut = context.WithCancel(context.Background())
		}
		g.pause = nil
	})
}

func (g *gate) drain() {
	g.change(func() {
		g.drained = true
		g.shut()
	})
}

// paused returns the pause that there is, or nil.
func (g *gate) paused() *Pause {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pause
}

// pass waits until the gate is open, and returns false when it will not be.
func (g *gate) pass(ctx context.Context) bool {
	for {
		g.mu.Lock()
		changed, drained, open := g.changed, g.drained, g.pause == nil
		g.mu.Unlock()
		if drained || ctx.Err() != nil {
			return false
		}
		if open {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// reading returns a context that ends with ctx and when the gate shuts.
func (g *gate) reading(ctx context.Context) (context.Context, context.CancelFunc) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(open, cancel)
	return ctx, func() { stop(); cancel() }
}
