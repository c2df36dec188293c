package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
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
	post    *post
	name    string
	writers []sink.Writer  // by index of the pipeline's sinks
	has     []event.Ranges // what each of them had when it was opened; see keepAhead
	reader  source.Reader
	free    chan *work // for the feeder to fill
	full    chan *work // for the lanes to settle
	queue   *queueing  // at sinks that want their outputs in order; nil when none does

	moved       atomic.Pointer[error] // why the source must be asked for partitions again
	stopReading context.CancelFunc
}

// A work is one batch on its way and what came of it.
type work struct {
	number uint64 // of the batch in this turn, counted from 0
	batch  event.Batch
	result event.Result
}

// runPartition takes turns at a partition until one ends other than by being
// fenced. Where there are leases, being fenced ends it too: it is for the lease
// to say who goes on. It returns nil when the partition is exhausted or drained.
func (p *Pipeline) runPartition(post *post) error {
	var fences pace
	for !post.halted() {
		err := p.turn(post)
		if post.leased || !errors.Is(err, sink.ErrFenced) {
			return err
		}
		p.status.opening()
		p.log.Warn("another worker has taken the partition over: taking it back", "partition", post.partition)
		sleep(post.reading, fences.next())
	}
	p.status.opened()
	return nil
}

func (p *Pipeline) turn(post *post) (err error) {
	t := &partition{p: p, post: post, name: post.partition}
	post.moving.Store(false)
	p.counters.open.Add(1)
	defer func() {
		t.close()
		p.counters.open.Add(-1)
	}()
	err = t.open(post.reading)
	p.status.opened()
	if err != nil {
		if post.halted() {
			return nil // whatever went wrong with opening, there is nothing to finish
		}
		return err
	}
	if post.orphan {
		return nil
	}
	p.log.Info("partition open", "partition", t.name)
	return t.run(post.ctx)
}

// open takes the partition over at every sink, lets them have what is in the
// outbox, then opens the reader with what all of them have.
func (t *partition) open(ctx context.Context) error {
	for i, s := range t.p.config.Sinks {
		err := t.p.sinks[i].retry(ctx, func() error {
			writer, has, err := s.Sink.Open(ctx, t.name)
			if err == nil {
				t.writers, t.has = append(t.writers, writer), append(t.has, has)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("open sink %s: %w", s.Name, err)
		}
	}
	done, err := t.replay(ctx)
	if err != nil || t.post.orphan {
		return err
	}
	err = t.p.source.retry(ctx, func() (err error) {
		t.reader, err = t.p.config.Source.Open(ctx, t.name, done)
		return err
	})
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	t.keepAhead(done)
	return nil
}

// done is what every sink has. Those that remember nothing are written before
// the others, and so have what the others remember.
func (t *partition) done() event.Ranges {
	var done event.Ranges
	first := true
	for i := range t.p.config.Sinks {
		switch {
		case t.p.config.Sinks[i].forgets():
		case first:
			done, first = t.has[i], false
		default:
			done = done.Intersect(t.has[i])
		}
	}
	return done
}

// close is for a turn at any stage. Its errors change nothing: what matters is
// durable, and the rest is read again.
func (t *partition) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.post.ctx), closeTime)
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
	if t.p.ordered() {
		t.queue = newQueueing()
	}
	t.p.counters.lags.open(t.name, len(t.writers))
	group, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(t.post.reading)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	t.stopReading = stop
	watching, relieve := context.WithCancel(ctx)
	defer relieve()
	var working sync.WaitGroup
	group.Go(func() error { return guard(func() error { return t.feed(ctx, reading) }) })
	for range lanes {
		working.Add(1)
		group.Go(func() error {
			defer working.Done()
			return guard(func() error { return t.lane(ctx) })
		})
	}
	group.Go(func() error { return guard(func() error { return t.watch(watching) }) })
	group.Go(func() error { working.Wait(); relieve(); return nil })
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
	t.post.moving.Store(true)
	t.stopReading()
}

// feed reads until there is no more to read or reading ends, and leaves what it
// has read to the lanes.
func (t *partition) feed(ctx, reading context.Context) error {
	defer close(t.full)
	for number := uint64(0); ; number++ {
		w := t.nextWork(reading)
		if w == nil {
			return ctx.Err()
		}
		w.number = number
		err := t.read(reading, &w.batch)
		switch {
		case err == nil:
			if err := t.compare(&w.batch); err != nil {
				return err
			}
			t.p.config.Reached(AfterRead)
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

// nextWork waits until there is a batch to read into and somewhere for it to
// go. It returns nil when reading ends.
func (t *partition) nextWork(reading context.Context) *work {
	began := time.Now()
	defer func() { t.p.counters.waited.Add(int64(time.Since(began))) }()
	t.p.circuit.wait(reading)
	select {
	case w := <-t.free:
		return w
	case <-reading.Done():
		return nil
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
	if b.Len() == 0 || b.Range.Count != uint64(b.Len()) || len(b.Only) > 0 && len(b.Only) != b.Len() {
		return fmt.Errorf("%d events for the positions %s: a fault in the source", b.Len(), b.Range)
	}
	c := &t.p.counters
	c.lags.change(t.name, func(l *lag) {
		l.read += b.Range.Count
		l.source = t.reader.Lag()
	})
	c.batches.Add(1)
	c.read.Add(b.Range.Count)
	c.bytes.Add(uint64(len(b.Data)))
	return nil
}
