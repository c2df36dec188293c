package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// closeTime bounds how long a reader may take to pass on its acknowledgements
// when it is closed. What it could not pass on, the sinks know.
const closeTime = 3 * time.Second

// A partition is one turn at a partition of the source: opened once, read until
// it is exhausted, drained, moved or fenced, closed.
type partition struct {
	p       *Pipeline
	name    string
	writers []sink.Writer // by index of the pipeline's sinks
	reader  source.Reader
	free    chan *work // for the feeder to fill
	full    chan *work // for the lanes to settle

	moved       atomic.Pointer[error] // why the source must be asked for partitions again
	stopReading context.CancelFunc
}

// A work is one batch on its way and what came of it.
type work struct {
	batch  event.Batch
	result event.Result
}

// runPartition takes turns at a partition until one ends other than by being
// fenced. It returns nil when the partition is exhausted or drained.
func (p *Pipeline) runPartition(ctx context.Context, name string) error {
	var fences pace
	for !p.drained(ctx) {
		err := p.turn(ctx, name)
		if !errors.Is(err, sink.ErrFenced) {
			return err
		}
		p.status.opening()
		p.log.Warn("another worker has taken the partition over: taking it back", "partition", name)
		reading, stop := p.reading(ctx)
		sleep(reading, fences.next())
		stop()
	}
	return nil
}

func (p *Pipeline) turn(ctx context.Context, name string) (err error) {
	t := &partition{p: p, name: name}
	defer func() { t.close(ctx) }()
	err = t.open(ctx)
	p.status.opened()
	if err != nil {
		if p.drained(ctx) {
			return nil // whatever went wrong with opening, there is nothing to finish
		}
		return err
	}
	p.log.Info("partition open", "partition", name)
	return t.run(ctx)
}

// open takes the partition over at every sink, then opens the reader with what
// all of them have.
func (t *partition) open(ctx context.Context) error {
	ctx, stop := t.p.reading(ctx)
	defer stop()
	var done event.Ranges
	for i, s := range t.p.config.Sinks {
		var writer sink.Writer
		var has event.Ranges
		err := t.p.sinks[i].retry(ctx, func() (err error) {
			writer, has, err = s.Sink.Open(ctx, t.name)
			return err
		})
		if err != nil {
			return fmt.Errorf("open sink %s: %w", s.Name, err)
		}
		t.writers = append(t.writers, writer)
		if i > 0 {
			has = done.Intersect(has)
		}
		done = has
	}
	err := t.p.source.retry(ctx, func() (err error) {
		t.reader, err = t.p.config.Source.Open(ctx, t.name, done)
		return err
	})
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	return nil
}

// close is for a turn at any stage. Its errors change nothing: what matters is
// durable, and the rest is read again.
func (t *partition) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	t.p.counters.lags.forget(t.name)
	if t.reader != nil {
		t.warn("close source", t.reader.Close(ctx))
	}
	for _, w := range t.writers {
		t.warn("close sink", w.Close())
	}
}

func (t *partition) warn(what string, err error) {
	if err != nil {
		t.p.log.Warn(what+" failed", "partition", t.name, "error", err)
	}
}

// run feeds the lanes until the feeder has no more and they have settled all.
func (t *partition) run(ctx context.Context) error {
	lanes := t.p.config.Lanes
	works := lanes + 1 // one is read into while every lane works
	t.free, t.full = make(chan *work, works), make(chan *work, works)
	for range works {
		t.free <- t.newWork()
	}
	group, ctx := errgroup.WithContext(ctx)
	reading, stop := t.p.reading(ctx)
	defer stop()
	t.stopReading = stop
	group.Go(func() error { return guard(func() error { return t.feed(ctx, reading) }) })
	for range lanes {
		group.Go(func() error { return guard(func() error { return t.lane(ctx) }) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if moved := t.moved.Load(); moved != nil {
		return *moved
	}
	return nil
}

func (t *partition) newWork() *work {
	return &work{
		batch:  event.Batch{Partition: t.name},
		result: event.Result{Outputs: make([]event.Output, len(t.writers))},
	}
}

// move ends reading because the partition is not what it was. What was read
// from it is settled under the name that it had.
func (t *partition) move(err error) {
	t.moved.Store(&err)
	t.stopReading()
}

// feed reads until there is no more to read or reading ends, and leaves what it
// has read to the lanes.
func (t *partition) feed(ctx, reading context.Context) error {
	defer close(t.full)
	for {
		var w *work
		select {
		case w = <-t.free:
		case <-reading.Done():
			return ctx.Err()
		}
		err := t.read(reading, &w.batch)
		switch {
		case err == nil:
			t.full <- w
		case err == io.EOF:
			return nil
		case errors.Is(err, source.ErrMoved):
			t.move(err)
			return nil
		case reading.Err() != nil:
			return ctx.Err()
		default:
			return fmt.Errorf("read from source: %w", err)
		}
	}
}

func (t *partition) read(ctx context.Context, b *event.Batch) error {
	err := t.p.source.retry(ctx, func() error {
		b.Reset()
		return t.reader.Read(ctx, b)
	})
	if err != nil {
		return err
	}
	if b.Len() == 0 || b.Range.Count != uint64(b.Len()) {
		return fmt.Errorf("%d events for the positions %s: a fault in the source", b.Len(), b.Range)
	}
	if l, ok := t.reader.(source.Lagger); ok {
		t.p.counters.lags.set(t.name, l.Lag())
	}
	c := &t.p.counters
	c.batches.Add(1)
	c.read.Add(b.Range.Count)
	c.bytes.Add(uint64(len(b.Data)))
	return nil
}
