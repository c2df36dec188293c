package pipeline

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// A feed is where a session reads batches: a partition of the source, or a batch
// of dead letters whose retry was requested. One goroutine calls read and lag;
// others may call acknowledge at the same time.
type feed interface {
	// read fills c with the next batch. io.EOF ends the feed.
	read(ctx context.Context, c *claim) error
	// acknowledge says that r is durable in every sink.
	acknowledge(ctx context.Context, r event.Range) error
	// lag returns the number of events behind the last read, or 0 if unknown.
	lag() uint64
	close(ctx context.Context) error
}

// openFeed opens the feed of the session's partition behind the ranges that every
// sink has.
func (s *session) openFeed(ctx context.Context, done event.Ranges) (err error) {
	for _, r := range done {
		if err := s.markCommitted(ctx, r); err != nil {
			return err
		}
	}
	switch {
	case s.assignment.retries:
		s.feed, err = s.openRetries(ctx, done)
	case s.assignment.timers:
		s.feed = &timerFeed{s.units[0]}
	default:
		s.feed, err = s.p.openSource(ctx, s.partition, done)
	}
	return err
}

// markCommitted tells the dead letters that r is durable in every sink.
func (s *session) markCommitted(ctx context.Context, r event.Range) error {
	return s.p.deadLetters.do(ctx, func() error {
		return s.p.config.DeadLetters.MarkCommitted(s.p.config.Name, s.partition, r)
	})
}

// A sourceFeed reads a partition of the source.
type sourceFeed struct {
	retrier *retrier
	reader  source.Reader
}

func (p *Pipeline) openSource(ctx context.Context, partition string, done event.Ranges) (feed, error) {
	f := &sourceFeed{retrier: p.source}
	err := p.source.do(ctx, func() (err error) {
		f.reader, err = p.config.Source.Open(ctx, partition, done)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	return f, nil
}

func (f *sourceFeed) read(ctx context.Context, c *claim) error {
	err := f.retrier.do(ctx, func() error {
		c.batch.Reset()
		return f.reader.Read(ctx, &c.batch)
	})
	if err == nil || err == io.EOF {
		return err
	}
	return fmt.Errorf("read from source: %w", err)
}

func (f *sourceFeed) acknowledge(ctx context.Context, r event.Range) error {
	err := f.retrier.do(ctx, func() error {
		return f.reader.Ack(ctx, event.Range{First: r.First, Count: r.Count})
	})
	if err != nil {
		return fmt.Errorf("acknowledge to source: %w", err)
	}
	return nil
}

func (f *sourceFeed) lag() uint64 { return f.reader.Lag() }

func (f *sourceFeed) close(ctx context.Context) error { return f.reader.Close(ctx) }

// A retryFeed reads a batch of requested retries.
type retryFeed struct {
	s       *session
	retrier *retrier
	reader  *deadletter.RetryReader
	decoder *format.Decoder // the setting may have changed since the events were read
}

func (s *session) openRetries(ctx context.Context, done event.Ranges) (feed, error) {
	p := s.p
	options := deadletter.RetryOptions{Pipeline: p.config.Name, Limits: p.config.Limits}
	for _, s := range p.config.Sinks {
		options.Sinks = append(options.Sinks, s.Name)
	}
	options.Remembered = slices.ContainsFunc(p.config.Sinks, func(s Sink) bool { return s.Guarantee == sink.ExactlyOnce })
	if p.units != nil {
		options.Group = p.retryGroup
	}
	f := &retryFeed{s: s, retrier: p.deadLetters, decoder: p.format.NewDecoder()}
	err := p.deadLetters.do(ctx, func() (err error) {
		f.reader, err = p.config.DeadLetters.OpenRetries(options, s.partition, done)
		return err
	})
	return f, err
}

func (f *retryFeed) read(ctx context.Context, c *claim) error {
	err := f.retrier.do(ctx, func() (err error) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.requested, err = f.reader.Read(&c.batch, c.requested); err == nil {
			f.decoder.DecodeAgain(&c.batch)
		}
		return err
	})
	if err != nil || f.s.p.units == nil {
		return err
	}
	return f.chooseUnit(ctx, c)
}

// acknowledge does nothing: markCommitted has completed the retries.
func (f *retryFeed) acknowledge(context.Context, event.Range) error { return nil }

func (f *retryFeed) lag() uint64 { return f.reader.Lag() }

func (f *retryFeed) close(context.Context) error { return nil }

// sourcePartitions asks the source for its partitions until it answers.
func (p *Pipeline) sourcePartitions(ctx context.Context) (names []string, err error) {
	err = p.source.do(ctx, func() (err error) {
		names, err = p.config.Source.Partitions(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list partitions of source: %w", err)
	}
	return names, nil
}

// retryBatch returns the name of the batch of requested retries to run, or "".
func (p *Pipeline) retryBatch(ctx context.Context) (name string, err error) {
	err = p.deadLetters.do(ctx, func() (err error) {
		name, err = p.config.DeadLetters.RetryBatch(p.config.Name)
		return err
	})
	return name, err
}

// keepRangesAhead reduces the ranges of each sink to those that another sink
// lacks. The source has compared the fingerprints of the ranges that all sinks
// have; those of the others are compared with what is read.
func (s *session) keepRangesAhead(done event.Ranges) {
	for i, ranges := range s.ranges {
		var ahead event.Ranges
		for _, r := range ranges {
			for _, part := range done.Missing(r) {
				part.Fingerprints = slices.Clone(part.Fingerprints)
				ahead.Add(part)
			}
		}
		s.ranges[i] = ahead
	}
}

// compareFingerprints refuses a batch that has other events than a sink that is
// ahead of others has under the same positions: the sink would skip the new
// events silently. That happens only if the source was restored to an older state
// and the outbox was lost.
func (s *session) compareFingerprints(b *event.Batch) error {
	if len(b.Range.Fingerprints) == 0 {
		return nil
	}
	for i, ranges := range s.ranges {
		for _, same := range ranges.Intersect(event.Ranges{{First: b.Range.First, Count: b.Range.Count}}) {
			for j, fingerprint := range same.Fingerprints {
				if fingerprint == b.Range.Fingerprints[same.First-b.Range.First+uint64(j)] {
					continue
				}
				return s.differentEvent(i, same.First+uint64(j))
			}
		}
	}
	return nil
}

func (s *session) differentEvent(i int, position uint64) error {
	return &event.PermanentError{
		Err: fmt.Errorf("sink %s has a different event than the source at position %d of %s, from where other sinks still need the source",
			s.p.config.Sinks[i].Name, position, s.partition),
		Hint: fmt.Sprintf("the source was restored to an older state while the sinks were at different positions; continue with: %s",
			source.SetPosition(s.p.config.Name, s.partition, position)),
	}
}
