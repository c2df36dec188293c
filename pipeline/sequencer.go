package pipeline

import (
	"context"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/sink"
)

// isOrdered reports whether a sink needs its outputs in the source's order.
func (p *Pipeline) isOrdered() bool {
	return slices.ContainsFunc(p.config.Sinks, func(s Sink) bool { return s.Sink.Traits().Order != sink.AnyOrder })
}

// A sequencer makes lanes commit in the order in which their batches were read.
// Their scripts run in parallel; each lane waits for its turn after its script. A
// nil sequencer lets lanes commit in any order.
type sequencer struct {
	mu       sync.Mutex
	next     uint64        // number of the batch whose turn it is
	advanced chan struct{} // closed when next rises
}

func newSequencer() *sequencer { return &sequencer{advanced: make(chan struct{})} }

// waitForTurn returns when it is the turn of batch number.
func (q *sequencer) waitForTurn(ctx context.Context, number uint64) error {
	if q == nil {
		return nil
	}
	for {
		q.mu.Lock()
		next, advanced := q.next, q.advanced
		q.mu.Unlock()
		if next == number {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endTurn gives the turn to the next batch.
func (q *sequencer) endTurn() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	close(q.advanced)
	q.advanced = make(chan struct{})
}
