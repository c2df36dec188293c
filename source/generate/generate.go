// Package generate is a source of synthetic email events: sent, open, click, bounce,
// spam. An event depends only on the seed and its position, so a resumed run continues
// with the events that the first run would have generated. A small share is invalid on
// purpose (see Append), so that the dead letters are not empty.
package generate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// Config are the settings below "generate".
type Config struct {
	Events uint64 `yaml:"events,required" unit:"events" example:"1000000" help:"number of events"`
	Seed   uint64 `yaml:"seed" default:"0" example:"7" help:"a different seed generates different events"`
	Rate   uint64 `yaml:"rate" default:"(unlimited)" unit:"events per second" example:"5000" help:"events per second"`
}

// Kind offers the source to configurations.
func Kind() source.Kind {
	return source.Kind{
		Name:   "generate",
		Doc:    "Generates email events, the same ones for the same seed.",
		Config: &Config{},
		New: func(env source.Env, decode func(any) error) (source.Source, error) {
			var c Config
			if err := decode(&c); err != nil {
				return nil, err
			}
			return New(env, c)
		},
	}
}

// A Source generates events. It has one partition, named for seed and number of events.
type Source struct {
	config Config
	limits source.Limits
}

// New makes a source.
func New(env source.Env, c Config) (*Source, error) {
	if c.Events == 0 {
		return nil, errors.New("events must be at least 1")
	}
	return &Source{config: c, limits: env.Limits}, nil
}

// Traits implements source.Source. There is nothing to check.
func (s *Source) Traits() source.Traits {
	return source.Traits{Unit: func(string) string { return "generate" }, Peek: s.peek, Check: func(ctx context.Context) error { return ctx.Err() }}
}

func (s *Source) peek(ctx context.Context, visit func(*event.Batch) error) error {
	return source.PeekPartitions(ctx, s, visit)
}

// Partitions implements source.Source.
func (s *Source) Partitions(context.Context) ([]string, error) { return []string{s.partition()}, nil }

func (s *Source) partition() string {
	return fmt.Sprintf("generate-%d-%d", s.config.Seed, s.config.Events)
}

// Open implements source.Source.
func (s *Source) Open(_ context.Context, partition string, done event.Ranges) (source.Reader, error) {
	if partition != s.partition() {
		return nil, source.ErrMoved
	}
	r := &reader{source: s, done: done, start: time.Now()}
	r.next.Store(done.Next(0))
	return r, nil
}

// Close implements source.Source.
func (s *Source) Close() error { return nil }

type reader struct {
	source *Source
	done   event.Ranges
	next   atomic.Uint64 // position; written by Read alone
	start  time.Time
	count  uint64 // of events since start
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	first, events := r.next.Load(), r.source.config.Events
	if first >= events {
		return io.EOF
	}
	wanted := event.Range{First: first, Count: min(uint64(r.source.limits.Events), events-first)}
	end, err := r.waitForRate(ctx, first, r.done.Missing(wanted)[0].End()) // first itself is missing
	if err != nil {
		return err
	}
	i := first
	for ; i < end; i++ {
		before := len(b.Data)
		b.Data = Append(b.Data, r.source.config.Seed, i)
		if len(b.Data) > r.source.limits.Bytes && i > first {
			b.Data = b.Data[:before]
			break
		}
		b.Ends = append(b.Ends, uint32(len(b.Data)))
	}
	b.Partition = r.source.partition()
	b.Range.First, b.Range.Count = first, i-first
	r.count += i - first
	r.next.Store(r.done.Next(i))
	return nil
}

// waitForRate waits until the rate allows at least one event. It returns where the
// batch must end to keep the rate.
func (r *reader) waitForRate(ctx context.Context, first, end uint64) (uint64, error) {
	rate := r.source.config.Rate
	if rate == 0 {
		return end, ctx.Err()
	}
	for {
		allowed := uint64(time.Since(r.start).Seconds()*float64(rate)) - r.count
		if allowed > 0 {
			return min(end, first+allowed), ctx.Err()
		}
		due := r.start.Add(time.Duration(float64(r.count+1) / float64(rate) * float64(time.Second)))
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Until(due)):
		}
	}
}

// Ack implements source.Reader. There is nothing to remove.
func (r *reader) Ack(context.Context, event.Range) error { return nil }

// Close implements source.Reader.
func (r *reader) Close(context.Context) error { return nil }

// Lag implements source.Reader.
func (r *reader) Lag() uint64 {
	return r.source.config.Events - min(r.next.Load(), r.source.config.Events)
}
