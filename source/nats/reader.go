package nats

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perigeedb/perigee/event"
)

const (
	pullMessages = 4096    // asked for at once
	pullBytes    = 4 << 20 // of those at most
	ready        = 256     // taken off the connection ahead of Read

	pullTime  = 5 * time.Second
	heartbeat = time.Second // two that do not come make the consumer anew
)

// A reader reads a stream through an ordered consumer, which the client makes
// anew by itself when the connection was lost.
type reader struct {
	source *Source
	stream jetstream.Stream
	name   string
	done   event.Ranges

	messages chan message
	stop     func()
	pumping  sync.WaitGroup
	kept     *message // read, and not part of the batch before
	failed   error    // came after the batch before
	next     uint64   // all before it was read, or is not there
	lag      uint64

	mu     sync.Mutex
	acked  event.Ranges
	purged uint64
}

type message struct {
	position, pending uint64
	data              []byte
	err               error
}

// begin starts reading at a position.
func (r *reader) begin(ctx context.Context, from uint64) error {
	r.next = from
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from + 1}
	if r.source.config.Subject != "" {
		config.FilterSubjects = []string{r.source.config.Subject}
	}
	consumer, err := r.stream.OrderedConsumer(ctx, config)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", r.source.config.Stream, err)
	}
	iterator, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullExpiry(pullTime), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", r.source.config.Stream, err)
	}
	r.messages = make(chan message, ready)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = func() {
		cancel()
		iterator.Stop()
		r.pumping.Wait()
	}
	r.pumping.Go(func() { pump(ctx, iterator, r.messages) })
	return nil
}

// pump takes messages off the connection until there are no more.
func pump(ctx context.Context, from jetstream.MessagesContext, to chan<- message) {
	for {
		next, err := from.Next()
		one := message{err: err}
		if err == nil {
			meta, err := next.Metadata()
			if one.err = err; err == nil {
				one.position, one.pending, one.data = meta.Sequence.Stream-1, meta.NumPending, next.Data()
			}
		}
		select {
		case to <- one:
		case <-ctx.Done():
			return
		}
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return
		}
	}
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	limits := r.source.env.Limits
	for b.Len() < limits.Events {
		m, err := r.take(ctx, b.Len() == 0)
		switch {
		case err != nil:
			return err
		case m == nil:
			return nil
		case b.Len() > 0 && (m.position != r.next || r.done.Has(m.position) || len(b.Data)+len(m.data) > limits.Bytes):
			r.kept = m
			return nil
		}
		r.skip(m.position)
		r.next, r.lag = m.position+1, m.pending
		if r.done.Has(m.position) {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = m.position
		}
		b.Range.Count++
		b.Range.Prints = append(b.Range.Prints, crc32.Checksum(m.data, castagnoli))
		b.Append(m.data)
	}
	return nil
}

// skip takes what is not there before a position for settled.
func (r *reader) skip(to uint64) {
	if to > r.next {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.acked.Add(event.Range{First: r.next, Count: to - r.next})
	}
}

// take returns the message that comes next, or nil when it would have to wait
// for it and must not.
func (r *reader) take(ctx context.Context, wait bool) (*message, error) {
	if m := r.kept; m != nil {
		r.kept = nil
		return m, nil
	}
	if r.failed != nil {
		return nil, r.again(ctx)
	}
	var m message
	select {
	case m = <-r.messages:
	default:
		if !wait {
			return nil, nil
		}
		select {
		case m = <-r.messages:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if m.err == nil {
		return &m, nil
	}
	if r.failed = m.err; !wait {
		return nil, nil // the batch goes first
	}
	return nil, r.again(ctx)
}

// again begins anew after an error that the consumer did not mend by itself. The
// caller comes again.
func (r *reader) again(ctx context.Context) error {
	r.stop()
	if err := r.begin(ctx, r.next); err != nil {
		r.stop = func() {}
		return err
	}
	err := r.failed
	r.failed = nil
	return fmt.Errorf("read stream %s: %w", r.source.config.Stream, err)
}

// Lag implements source.Reader.
func (r *reader) Lag() uint64 { return r.lag }

// Ack implements source.Reader.
func (r *reader) Ack(ctx context.Context, done event.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	to := r.acked.Next(0)
	if !r.source.config.Trim || to < r.purged+uint64(r.source.env.Limits.Events) {
		return nil
	}
	return r.purge(ctx, to)
}

// purge removes what every sink has from the stream.
func (r *reader) purge(ctx context.Context, to uint64) error {
	if err := r.stream.Purge(ctx, jetstream.WithPurgeSequence(to+1)); err != nil {
		return fmt.Errorf("trim stream %s: %w", r.source.config.Stream, err)
	}
	r.purged = to
	return nil
}

// Close implements source.Reader.
func (r *reader) Close(ctx context.Context) error {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.acked.Next(0); r.source.config.Trim && to > r.purged {
		return r.purge(ctx, to)
	}
	return nil
}
