package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/kafka"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// groupInterval is how often the position is committed to the consumer group.
const groupInterval = 5 * time.Second

// A reader reads one partition.
type reader struct {
	source    *Source
	name      string
	partition int32
	client    *kgo.Client
	decoder   *format.Decoder
	done      event.Ranges
	next      uint64        // everything before it was read, or does not exist
	end       uint64        // of the partition, as last fetched
	fetched   []*kgo.Record // not yet part of a batch

	mu          sync.Mutex
	acked       event.Ranges
	groupOffset uint64 // last committed to the consumer group
	groupTime   time.Time
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	if err := r.readRecords(ctx, b); err != nil {
		return err
	}
	r.decoder.Decode(b)
	return nil
}

// readRecords fills b with records as they are in the topic.
func (r *reader) readRecords(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	limits := r.source.env.Limits
	for b.Len() < limits.Events {
		if len(r.fetched) == 0 {
			if b.Len() > 0 {
				return nil
			}
			if err := r.fetch(ctx); err != nil {
				return err
			}
			continue
		}
		record := r.fetched[0]
		at := uint64(record.Offset)
		if b.Len() > 0 && (at != r.next || r.done.Has(at) || len(b.Data)+len(record.Value) > limits.Bytes) {
			return nil
		}
		r.fetched = r.fetched[1:]
		r.ackMissing(at)
		r.next = at + 1
		if r.done.Has(at) {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = at
		}
		b.Range.Count++
		b.Range.Fingerprints = append(b.Range.Fingerprints, crc32.Checksum(record.Value, castagnoli))
		b.Append(record.Value)
		appendOrigin(b, record)
	}
	return nil
}

// appendOrigin adds the origin of the last record of a batch, if that or one before it has one.
func appendOrigin(b *event.Batch, record *kgo.Record) {
	var o event.Origin
	if len(record.Headers) > 0 {
		o = kafka.OriginOf(record.Headers)
	}
	if o.Name == "" && len(b.Origins) == 0 {
		return
	}
	for len(b.Origins) < b.Len()-1 {
		b.Origins = append(b.Origins, event.Origin{})
	}
	b.Origins = append(b.Origins, o)
}

// ackMissing acknowledges the offsets before at that have no record.
func (r *reader) ackMissing(at uint64) {
	if at > r.next {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.acked.Add(event.Range{First: r.next, Count: at - r.next})
	}
}

// fetch waits for records.
func (r *reader) fetch(ctx context.Context) error {
	fetches := r.client.PollRecords(ctx, r.source.env.Limits.Events)
	if err := ctx.Err(); err != nil {
		return err
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) { r.end = uint64(max(p.HighWatermark, int64(r.end))) })
	var failed error
	fetches.EachError(func(_ string, _ int32, err error) { failed = err })
	r.fetched = append(r.fetched[:0], fetches.Records()...)
	switch {
	case failed == nil || len(r.fetched) > 0:
		return nil
	case errors.Is(failed, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: offset %d of %s is gone", source.ErrMoved, r.next, r.name) // the next Open says why
	case errors.Is(failed, kerr.UnknownTopicID), errors.Is(failed, kerr.InconsistentTopicID):
		return fmt.Errorf("%w: topic %s was created again", source.ErrMoved, r.source.config.Topic)
	}
	return r.source.wrapError(failed)
}

// Lag implements source.Reader.
func (r *reader) Lag() uint64 {
	if r.end < r.next {
		return 0
	}
	return r.end - r.next
}

// Ack implements source.Reader.
func (r *reader) Ack(ctx context.Context, done event.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	if time.Since(r.groupTime) < groupInterval {
		return nil
	}
	return r.commitGroupOffset(ctx)
}

// commitGroupOffset commits the position to the consumer group. Only tools that watch
// lag read it, so a failure is logged and does not stop the pipeline.
func (r *reader) commitGroupOffset(ctx context.Context) error {
	to := r.acked.Next(0)
	if r.source.config.Group == "" || to == r.groupOffset {
		return nil
	}
	admin, err := r.source.adminClient()
	if err != nil {
		return err
	}
	r.groupTime = time.Now()
	var offsets kadm.Offsets
	offsets.AddOffset(r.source.config.Topic, r.partition, int64(to), -1)
	if err := admin.CommitAllOffsets(ctx, r.source.config.Group, offsets); err != nil {
		r.source.env.Log.Warn("cannot commit the position to the consumer group", "group", r.source.config.Group, "error", err)
		return nil
	}
	r.groupOffset = to
	return nil
}

// Close implements source.Reader.
func (r *reader) Close(ctx context.Context) error {
	r.client.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commitGroupOffset(ctx)
}
