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
	"github.com/perigeedb/perigee/source"
)

// tellEvery is how often a consumer group is told how far the sinks are.
const tellEvery = 5 * time.Second

// A reader reads one partition.
type reader struct {
	source    *Source
	name      string
	partition int32
	client    *kgo.Client
	done      event.Ranges
	next      uint64        // all before it was read, or is not there
	end       uint64        // of the partition, as last told
	waiting   []*kgo.Record // fetched, and not part of a batch yet

	mu    sync.Mutex
	acked event.Ranges
	told  uint64
	when  time.Time
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	limits := r.source.env.Limits
	for b.Len() < limits.Events {
		if len(r.waiting) == 0 {
			if b.Len() > 0 {
				return nil
			}
			if err := r.poll(ctx); err != nil {
				return err
			}
			continue
		}
		record := r.waiting[0]
		at := uint64(record.Offset)
		if b.Len() > 0 && (at != r.next || r.done.Has(at) || len(b.Data)+len(record.Value) > limits.Bytes) {
			return nil
		}
		r.waiting = r.waiting[1:]
		r.skip(at)
		r.next = at + 1
		if r.done.Has(at) {
			continue
		}
		if b.Len() == 0 {
			b.Range.First = at
		}
		b.Range.Count++
		b.Range.Prints = append(b.Range.Prints, crc32.Checksum(record.Value, castagnoli))
		b.Append(record.Value)
	}
	return nil
}

// skip takes offsets before at that have no record for settled.
func (r *reader) skip(at uint64) {
	if at > r.next {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.acked.Add(event.Range{First: r.next, Count: at - r.next})
	}
}

// poll waits for records.
func (r *reader) poll(ctx context.Context) error {
	fetches := r.client.PollRecords(ctx, r.source.env.Limits.Events)
	if err := ctx.Err(); err != nil {
		return err
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) { r.end = uint64(max(p.HighWatermark, int64(r.end))) })
	var failed error
	fetches.EachError(func(_ string, _ int32, err error) { failed = err })
	r.waiting = append(r.waiting[:0], fetches.Records()...)
	switch {
	case failed == nil || len(r.waiting) > 0:
		return nil
	case errors.Is(failed, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: offset %d of %s is gone", source.ErrMoved, r.next, r.name) // opened anew, it is explained
	case errors.Is(failed, kerr.UnknownTopicID), errors.Is(failed, kerr.InconsistentTopicID):
		return fmt.Errorf("%w: topic %s was made again", source.ErrMoved, r.source.config.Topic)
	}
	return r.source.explain(failed)
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
	if time.Since(r.when) < tellEvery {
		return nil
	}
	return r.tell(ctx)
}

// tell tells the consumer group. It is for those who watch: what fails does not
// matter to the pipeline.
func (r *reader) tell(ctx context.Context) error {
	to := r.acked.Next(0)
	if r.source.config.Group == "" || to == r.told {
		return nil
	}
	admin, err := r.source.client()
	if err != nil {
		return err
	}
	r.when = time.Now()
	var offsets kadm.Offsets
	offsets.AddOffset(r.source.config.Topic, r.partition, int64(to), -1)
	if err := admin.CommitAllOffsets(ctx, r.source.config.Group, offsets); err != nil {
		r.source.env.Log.Warn("could not tell the consumer group how far the sinks are", "group", r.source.config.Group, "error", err)
		return nil
	}
	r.told = to
	return nil
}

// Close implements source.Reader.
func (r *reader) Close(ctx context.Context) error {
	r.client.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tell(ctx)
}
