package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/source"
)

// limitsInARow is how many runs one after the other may end at a batch limit.
const limitsInARow = 3

// lane settles batches, one at a time, until there are no more.
func (t *partition) lane(ctx context.Context) error {
	for w := range t.full {
		if err := t.settle(ctx, w); err != nil {
			return err
		}
		w.shrink(t.p.config.Limits.Bytes)
		t.free <- w
	}
	return nil
}

// settle takes a batch through script, dead letters, sinks and ack. Where a
// limit ends the run of the script, what ran is settled as a range of its own
// and the rest is run again.
func (t *partition) settle(ctx context.Context, w *work) error {
	batch := &w.batch
	for limits := 1; ; limits++ {
		name := t.p.config.Script.String()
		limit, err := t.runScript(ctx, batch, &w.result)
		if err != nil {
			return err
		}
		t.p.config.Reached(AfterScript)
		if ran := w.result.Ran; ran > 0 {
			last := ran == batch.Len()
			if err := t.finish(ctx, w.number, last, &settling{t: t, batch: batch, res: &w.result, script: name}); err != nil {
				return err
			}
			if last {
				return nil
			}
			rest := batch.Tail(ran)
			batch = &rest
		}
		if limits == limitsInARow {
			return t.p.pauseItself(fmt.Sprintf("script %s: %d runs in a row hit a limit, the last one at position %d of partition %s: %v",
				t.p.config.Script, limits, batch.Range.First, t.name, limit))
		}
		t.p.log.Warn("script hit a limit: running the rest of the batch again",
			"partition", t.name, "position", batch.Range.First, "error", limit)
	}
}

// finish commits and acknowledges what ran of a batch, when it is its turn.
func (t *partition) finish(ctx context.Context, number uint64, last bool, s *settling) error {
	s.name()
	s.heed()
	if t.queue != nil {
		if err := t.queue.wait(ctx, number); err != nil {
			return err
		}
	}
	if err := s.commit(ctx); err != nil {
		return err
	}
	if t.queue != nil && last {
		t.queue.leave()
	}
	t.p.config.Reached(BeforeAck)
	if err := t.ack(ctx, s.rng()); err != nil {
		return err
	}
	t.p.config.Reached(AfterAck)
	return nil
}

// runScript returns the limit that ended the run early, or nil when all ran.
func (t *partition) runScript(ctx context.Context, batch *event.Batch, res *event.Result) (*script.LimitError, error) {
	began := time.Now()
	err := t.p.config.Script.Run(ctx, batch, res)
	t.p.counters.script.Add(int64(time.Since(began)))
	var limit *script.LimitError
	if errors.As(err, &limit) {
		return limit, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run script %s: %w", t.p.config.Script, err)
	}
	if res.Ran != batch.Len() {
		return nil, fmt.Errorf("script %s ran %d of %d events and gave no reason: a fault in the engine",
			t.p.config.Script, res.Ran, batch.Len())
	}
	return nil, nil
}

// ack gives the range back to the source. A source that has moved needs it no
// more: the feeder stops, and the rest of what was read is settled.
func (t *partition) ack(ctx context.Context, r event.Range) error {
	err := t.p.source.retry(ctx, func() error {
		return t.reader.Ack(ctx, event.Range{First: r.First, Count: r.Count})
	})
	if errors.Is(err, source.ErrMoved) {
		t.move(err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("acknowledge to source: %w", err)
	}
	return nil
}

// shrink gives back memory that a batch far beyond the limit has made grow.
func (w *work) shrink(limit int) {
	keep := 4 * max(limit, 256<<10)
	if cap(w.batch.Data) > keep {
		w.batch.Data = nil
	}
	for i := range w.result.Outputs {
		if out := &w.result.Outputs[i]; cap(out.Data) > keep {
			*out = event.Output{}
		}
	}
}
