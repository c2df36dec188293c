package pipeline

import (
	"context"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/sink"
)

// ordered reports whether one of the sinks wants its outputs in the source's order.
func (p *Pipeline) ordered() bool {
	return slices.ContainsFunc(p.config.Sinks, func(s Sink) bool { return s.Sink.Traits().Order != sink.AnyOrder })
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
