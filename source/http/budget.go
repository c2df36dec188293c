package http

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	errBusy    = errors.New("the memory for bodies is in use")
	errEvicted = errors.New("the body arrives too slowly while others wait")
)

const (
	busyTime   = time.Second            // that a body waits for memory
	evictAfter = 500 * time.Millisecond // age at which a body may have to make room
)

// A budget is the memory for bodies. It is taken as bytes arrive. When it is used up, the
// body that has held the most for the longest time makes room: one that has stopped
// arriving, or drips.
type budget struct {
	mu     sync.Mutex
	free   int64
	bodies map[*share]bool
	given  chan struct{} // closed when memory is given back
}

// A share is the part of a budget that one body has.
type share struct {
	budget *budget
	bytes  int64
	start  time.Time
	evict  context.CancelCauseFunc
}

func newBudget(bytes int64) *budget {
	return &budget{free: bytes, bodies: map[*share]bool{}, given: make(chan struct{})}
}

// open returns an empty share. evict is called, once or more often, when it has to be
// given back.
func (b *budget) open(evict context.CancelCauseFunc) *share {
	s := &share{budget: b, start: time.Now(), evict: evict}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bodies[s] = true
	return s
}

// grow takes more memory. It waits for busyTime, and makes another body give memory back.
func (s *share) grow(ctx context.Context, bytes int64) error {
	timeout := time.NewTimer(busyTime)
	defer timeout.Stop()
	for {
		given, ok := s.take(bytes)
		if ok {
			return nil
		}
		select {
		case <-given:
		case <-time.After(evictAfter / 5): // by then another body may be old enough
		case <-timeout.C:
			return errBusy
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *share) take(bytes int64) (given chan struct{}, ok bool) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes <= b.free {
		b.free -= bytes
		s.bytes += bytes
		return nil, true
	}
	if costliest := b.costliest(); costliest != nil && costliest != s {
		costliest.evict(errEvicted)
	}
	return b.given, false
}

// costliest returns the body that has held the most for the longest time, if one is old
// enough to make room.
func (b *budget) costliest() (costliest *share) {
	now, highest := time.Now(), 0.0
	for s := range b.bodies {
		age := now.Sub(s.start)
		if cost := float64(s.bytes) * age.Seconds(); age > evictAfter && cost > highest {
			highest, costliest = cost, s
		}
	}
	return costliest
}

// close gives all memory back. It may be called more than once.
func (s *share) close() {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.bodies[s] {
		return
	}
	delete(b.bodies, s)
	b.free += s.bytes
	close(b.given)
	b.given = make(chan struct{})
}
