package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
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
		limit, err := t.runScript(ctx, batch, &w.result)
		if err != nil {
			return err
		}
		if ran := w.result.Ran; ran > 0 {
			if err := t.commit(ctx, batch, &w.result); err != nil {
				return err
			}
			if ran == batch.Len() {
				return nil
			}
			rest := batch.Tail(ran)
			batch = &rest
		}
		if limits == limitsInARow {
			return fmt.Errorf("script %s: %d runs in a row hit a limit, the last one at position %d: %w",
				t.p.config.Script, limits, batch.Range.First, limit)
		}
		t.p.log.Warn("script hit a limit: running the rest of the batch again",
			"partition", t.name, "position", batch.Range.First, "error", limit)
	}
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

// commit makes durable everything that came of the events that ran.
func (t *partition) commit(ctx context.Context, batch *event.Batch, res *event.Result) error {
	r := batch.Range.Head(uint64(res.Ran))
	for i := range res.Outputs {
		res.Outputs[i].Partition, res.Outputs[i].Range = t.name, r
	}
	if err := t.keep(ctx, r, res.Dead); err != nil {
		return err
	}
	for i := range t.writers {
		if err := t.write(ctx, i, batch, res); err != nil {
			return fmt.Errorf("write to sink %s: %w", t.p.config.Sinks[i].Name, err)
		}
	}
	t.count(res)
	return t.ack(ctx, r)
}

func (t *partition) keep(ctx context.Context, r event.Range, dead []event.Dead) error {
	err := t.p.letters.retry(ctx, func() error {
		return t.p.config.DeadLetters.Replace(t.p.config.Name, t.name, r, dead)
	})
	if err != nil {
		return fmt.Errorf("keep dead letters: %w", err)
	}
	return nil
}

// write writes the output of sink i, without the rows that the sink refuses.
func (t *partition) write(ctx context.Context, i int, batch *event.Batch, res *event.Result) error {
	out := &res.Outputs[i]
	for {
		err := t.p.sinks[i].retry(ctx, func() error {
			began := time.Now()
			defer func() { t.p.counters.sinks[i].time.Add(int64(time.Since(began))) }()
			return t.writers[i].Write(ctx, out)
		})
		var refused *sink.RowErrors
		if !errors.As(err, &refused) {
			return err
		}
		if err := t.refuse(refused, batch, out, res); err != nil {
			return err
		}
		if err := t.keep(ctx, out.Range, res.Dead); err != nil {
			return err
		}
	}
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

func (t *partition) count(res *event.Result) {
	c := &t.p.counters
	for i := range res.Outputs {
		c.sinks[i].rows.Add(uint64(res.Outputs[i].Len()))
	}
	c.dropped.Add(uint64(res.Dropped))
	c.dead.add(res.Dead)
	c.settled.Add(uint64(res.Ran))
	t.p.deaths.report(t.p.log, t.name, res.Dead)
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
