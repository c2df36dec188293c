package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/source"
)

// limitsMax is how many runs of the script on one batch may hit a limit.
const limitsMax = 3

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
	run := scriptRun{Script: t.p.config.Script, spent: &t.p.counters.script}
	rest := w.batch.Range.First // position of the events that have not run
	err := script.RunAll(ctx, &run, &w.batch, &w.result, limitsMax, func(part *event.Batch, limit *script.LimitError) error {
		t.p.config.Reached(AfterScript)
		rest = part.Range.End()
		last := rest == w.batch.Range.End()
		if err := t.finish(ctx, w.number, last, &settling{t: t, batch: part, res: &w.result, script: run.name}); err != nil {
			return err
		}
		if !last {
			t.p.log.Warn("script hit a limit: running the rest of the batch again",
				"partition", t.name, "position", rest, "error", limit)
		}
		return nil
	})
	var limit *script.LimitError
	if errors.As(err, &limit) {
		return t.p.pauseItself(fmt.Sprintf("script %s: %d runs in a row hit a limit, the last one at position %d of partition %s: %v",
			run.Script, limitsMax, rest, t.name, limit))
	}
	return err
}

// A scriptRun is the script of a pipeline while it runs on a batch.
type scriptRun struct {
	script.Script
	name  string        // of the version that ran last
	spent *atomic.Int64 // time in the script
}

// Run implements script.Script.
func (r *scriptRun) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	r.name = r.Script.String()
	began := time.Now()
	err := r.Script.Run(ctx, in, res)
	r.spent.Add(int64(time.Since(began)))
	var limit *script.LimitError
	if err != nil && !errors.As(err, &limit) {
		return fmt.Errorf("run script %s: %w", r.name, err)
	}
	return err
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
