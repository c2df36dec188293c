package pipeline

import (
	"context"
	"sync"

	"github.com/perigeedb/perigee/sink"
)

// ordered tells whether one of the sinks wants its outputs in order.
func (p *Pipeline) ordered() bool {
	for _, s := range p.config.Sinks {
		if o, ok := s.Sink.(sink.Ordered); ok && o.Ordered() {
			return true
		}
	}
	return false
}

// queueing lets lanes come one after the other, in the order in which their
// batches were read.
type queueing struct {
	mu     sync.Mutex
	next   uint64
	change chan struct{} // closed when next rises
}

func newQueueing() *queueing { return &queueing{change: make(chan struct{})} }

// wait returns when it is the turn of batch number.
func (q *queueing) wait(ctx context.Context, number uint64) error {
	for {
		q.mu.Lock()
		next, change := q.next, q.change
		q.mu.Unlock()
		if next == number {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave lets the next batch come.
func (q *queueing) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	close(q.change)
	q.change = make(chan struct{})
}
