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
	"github.com/perigeedb/perigee/source/format"
)

const (
	pullMessages  = 4096    // in one request
	pullBytes     = 4 << 20 // in one request
	messageBuffer = 256     // read from the connection ahead of Read

	pullTime  = 5 * time.Second
	heartbeat = time.Second // after two missing ones the client recreates the consumer
)

// A reader reads a stream through an ordered consumer, which the client recreates by
// itself after it lost the connection.
type reader struct {
	source  *Source
	stream  jetstream.Stream
	name    string
	decoder *format.Decoder
	done    event.Ranges

	messages   chan message
	stop       func()
	forwarding sync.WaitGroup
	held       *message // received, for the next batch
	err        error    // received after the last batch
	next       uint64   // everything before it was read, or does not exist
	lag        uint64

	mu     sync.Mutex
	acked  event.Ranges
	purged uint64
}

type message struct {
	position, pending uint64
	data              []byte
	err               error
}

// start starts reading at a position.
func (r *reader) start(ctx context.Context, from uint64) error {
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
	r.messages = make(chan message, messageBuffer)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = func() {
		cancel()
		iterator.Stop()
		r.forwarding.Wait()
	}
	r.forwarding.Go(func() { forwardMessages(ctx, iterator, r.messages) })
	return nil
}

// forwardMessages sends messages to a channel until the iterator is closed.
func forwardMessages(ctx context.Context, from jetstream.MessagesContext, to chan<- message) {
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
	if err := r.readMessages(ctx, b); err != nil {
		return err
	}
	r.decoder.Decode(b)
	return nil
}

// readMessages fills b with messages as they are in the stream.
func (r *reader) readMessages(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	limits := r.source.env.Limits
	for b.Len() < limits.Events {
		m, err := r.nextMessage(ctx, b.Len() == 0)
		switch {
		case err != nil:
			return err
		case m == nil:
			return nil
		case b.Len() > 0 && (m.position != r.next || r.done.Has(m.position) || len(b.Data)+len(m.data) > limits.Bytes):
			r.held = m
			return nil
		}
		r.ackMissing(m.position)
		r.next, r.lag = m.position+1, m.pending
		if r.done.Has(m.position) {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = m.position
		}
		b.Range.Count++
		b.Range.Fingerprints = append(b.Range.Fingerprints, crc32.Checksum(m.data, castagnoli))
		b.Append(m.data)
	}
	return nil
}

// ackMissing acknowledges the positions before to that have no message.
func (r *reader) ackMissing(to uint64) {
	if to > r.next {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.acked.Add(event.Range{First: r.next, Count: to - r.next})
	}
}

// nextMessage returns the next message. If wait is not set, it returns nil rather than
// block.
func (r *reader) nextMessage(ctx context.Context, wait bool) (*message, error) {
	if m := r.held; m != nil {
		r.held = nil
		return m, nil
	}
	if r.err != nil {
		return nil, r.restart(ctx)
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
	if r.err = m.err; !wait {
		return nil, nil // deliver the batch first
	}
	return nil, r.restart(ctx)
}

// restart creates another consumer after an error that the client did not recover from.
// It returns that error; the caller retries.
func (r *reader) restart(ctx context.Context) error {
	r.stop()
	if err := r.start(ctx, r.next); err != nil {
		r.stop = func() {}
		return err
	}
	err := r.err
	r.err = nil
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

// purge removes the messages before a position from the stream.
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
