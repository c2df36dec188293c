package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

const (
	sourceKind  = "replay"
	discardKind = "discard"
)

// sourceKind returns the kind of source that reads the copied events.
func (r *Replay) sourceKind() source.Kind {
	return source.Kind{Name: sourceKind, Doc: "Reads the events of a replay.", New: func(env source.Env, _ func(any) error) (source.Source, error) {
		return &eventSource{replay: r, limits: env.Limits, remembered: env.Remembered}, nil
	}}
}

// An eventSource reads the copied events. Its one partition is named for the copy.
type eventSource struct {
	replay     *Replay
	limits     source.Limits
	remembered bool // by a sink
}

func (s *eventSource) partition() string { return "replay-" + s.replay.manifest.ID }

// Partitions implements source.Source.
func (s *eventSource) Partitions(context.Context) ([]string, error) {
	return []string{s.partition()}, nil
}

// Open implements source.Source. If no sink remembers positions, the replay does.
func (s *eventSource) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if partition != s.partition() {
		return nil, source.ErrMoved
	}
	r := s.replay
	r.mu.Lock()
	if s.remembered {
		r.acked = nil
		for _, one := range done {
			r.acked.Add(event.Range{First: one.First, Count: one.Count})
		}
	} else {
		done = append(event.Ranges(nil), r.acked...)
	}
	r.mu.Unlock()
	events, err := openEvents(r.folder)
	if err != nil {
		return nil, &event.PermanentError{Err: err, Hint: r.forgetHint()}
	}
	return &reader{source: s, events: events, done: done, pace: pace{rate: r.Rate}}, nil
}

// Traits implements source.Source.
func (s *eventSource) Traits() source.Traits {
	return source.Traits{Local: func(string) bool { return true }}
}

// Close implements source.Source.
func (s *eventSource) Close() error { return nil }

type reader struct {
	source  *eventSource
	events  *eventReader
	done    event.Ranges
	pace    pace
	at      atomic.Uint64 // position of the next event; written by Read alone
	pending []byte        // the next event, which had no room in a batch
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	for r.done.Has(r.at.Load()) && r.at.Load() < r.source.replay.manifest.Count {
		if _, err := r.next(); err != nil {
			return err
		}
		r.advance()
	}
	first := r.at.Load()
	if first >= r.source.replay.manifest.Count {
		return io.EOF
	}
	if err := r.pace.wait(ctx); err != nil {
		return err
	}
	maxEvents := r.pace.batch(r.source.limits.Events)
	for b.Len() < maxEvents && r.at.Load() < r.source.replay.manifest.Count && !r.done.Has(r.at.Load()) {
		doc, err := r.next()
		if err != nil {
			return err
		}
		if b.Len() > 0 && len(b.Data)+len(doc) > r.source.limits.Bytes {
			break
		}
		b.Append(doc)
		r.advance()
	}
	b.Partition, b.Range.First, b.Range.Count = r.source.partition(), first, uint64(b.Len())
	r.pace.took(b.Len())
	return nil
}

// next returns the event at the present position, until advance.
func (r *reader) next() ([]byte, error) {
	if r.pending == nil {
		doc, err := r.events.next()
		if err != nil {
			return nil, &event.PermanentError{
				Err: fmt.Errorf("event %d of the copy in %s cannot be read: %w", r.at.Load(), r.source.replay.folder, err), Hint: r.source.replay.forgetHint(),
			}
		}
		r.pending = doc
	}
	return r.pending, nil
}

func (r *reader) advance() { r.pending = nil; r.at.Add(1) }

// Lag implements source.Reader.
func (r *reader) Lag() uint64 { return r.source.replay.manifest.Count - r.at.Load() }

// Ack implements source.Reader.
func (r *reader) Ack(_ context.Context, done event.Range) error { return r.source.replay.ack(done) }

// Close implements source.Reader.
func (r *reader) Close(context.Context) error {
	return errors.Join(r.events.close(), r.source.replay.saveAcked())
}

// A pace keeps a rate of events. It makes up for at most catchUp of lost time, so that the rate
// is kept also after a sink stood still.
type pace struct {
	rate float64 // events per second; 0 for no limit
	next time.Time
}

const (
	catchUp = 200 * time.Millisecond
	perWait = 50 * time.Millisecond // of events in a batch
)

// batch returns the maximum number of events in a batch.
func (p *pace) batch(maxEvents int) int {
	if p.rate == 0 {
		return maxEvents
	}
	return max(1, min(maxEvents, int(p.rate*perWait.Seconds())))
}

func (p *pace) wait(ctx context.Context) error {
	left := time.Until(p.next)
	if p.rate == 0 || left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// took records that n events were read.
func (p *pace) took(n int) {
	if p.rate == 0 {
		return
	}
	now := time.Now()
	switch earliest := now.Add(-catchUp); {
	case p.next.IsZero():
		p.next = now
	case p.next.Before(earliest):
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
}

// discard returns the kind of a sink that is skipped. It takes rows, so that a script can still
// route to it.
func discard() sink.Kind {
	return sink.Kind{Name: discardKind, Doc: "Writes nothing.", Guarantee: sink.AtLeastOnce, New: func(sink.Env, func(any) error) (sink.Sink, error) {
		return discardSink{}, nil
	}}
}

type discardSink struct{}

func (discardSink) Open(context.Context, string) (sink.Writer, event.Ranges, error) {
	return discardSink{}, nil, nil
}
func (discardSink) Traits() sink.Traits                        { return sink.Traits{Order: sink.AnyOrder} }
func (discardSink) Write(context.Context, *event.Output) error { return nil }
func (discardSink) Verify(context.Context) error               { return nil }
func (discardSink) Close() error                               { return nil }
