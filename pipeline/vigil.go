package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// watch asks the sinks, as often as leases are renewed, whether they still have
// what they had: a place that was set back to an older state while nothing is
// written is noticed within as long. It returns when ctx ends, or with what a sink
// has lost.
func (t *partition) watch(ctx context.Context) error {
	every := t.p.config.Lease / 3
	for sleep(ctx, every); ctx.Err() == nil; sleep(ctx, every) {
		for i, w := range t.writers {
			if err := verify(ctx, w, every); err != nil {
				return fmt.Errorf("look at sink %s: %w", t.p.config.Sinks[i].Name, err)
			}
		}
	}
	return nil
}

// verify leaves it to the writes to find out that a sink is away.
func verify(ctx context.Context, w sink.Writer, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := w.Verify(ctx)
	if event.IsPermanent(err) || errors.Is(err, sink.ErrFenced) {
		return err
	}
	return nil
}
