//go:build cgo

package luajit

import (
	"context"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/internal/luajit"
)

// engines are those of a script that wait for a batch, and the leave to make more.
type engines struct {
	mu      sync.Mutex
	idle    []*luajit.Engine // the last used last, for what the processor still knows of it
	spares  int              // that may still be made
	waiting []chan *luajit.Engine
}

// take returns an engine, or nil for the leave to make one. It waits for what give
// brings when there is neither.
func (p *engines) take(ctx context.Context) (*luajit.Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		e := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return e, nil
	}
	if p.spares > 0 {
		p.spares--
		p.mu.Unlock()
		return nil, nil
	}
	turn := make(chan *luajit.Engine, 1)
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()
	select {
	case e := <-turn:
		return e, nil
	case <-ctx.Done():
		p.leave(turn)
		return nil, ctx.Err()
	}
}

// leave takes a turn out of the queue, and passes on what it was given meanwhile.
func (p *engines) leave(turn chan *luajit.Engine) {
	p.mu.Lock()
	i := slices.Index(p.waiting, turn)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.give(<-turn)
	}
}

// give takes back what take returned.
func (p *engines) give(e *luajit.Engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.waiting) > 0:
		p.waiting[0] <- e
		p.waiting = slices.Delete(p.waiting, 0, 1)
	case e == nil:
		p.spares++
	default:
		p.idle = append(p.idle, e)
	}
}
