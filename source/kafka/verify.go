package kafka

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verify makes sure that the partition is the one that the sinks have, and that
// nothing went from it that they have not. A partition only grows at its end, so
// the last record that they have speaks for all before it.
func (s *Source) verify(ctx context.Context, name string, partition int32, bounds event.Range, done event.Ranges) error {
	if len(done) == 0 {
		return nil
	}
	last := done[len(done)-1]
	if bounds.End() < last.End() {
		return s.older(name, bounds.End(), fmt.Errorf("the sinks have %s up to offset %d, but it ends at %d", name, last.End(), bounds.End()))
	}
	if len(last.Prints) > 0 && last.End() > bounds.First {
		if err := s.same(ctx, name, partition, last); err != nil {
			return err
		}
	}
	return s.noGap(name, bounds, done)
}

// noGap refuses sinks that lack what retention removed. Offsets that never held a
// record, as transactions and compaction leave, look the same once they are gone:
// those between what the sinks have are told and not refused, and so is one
// behind it, where a transaction ends.
func (s *Source) noGap(name string, bounds event.Range, done event.Ranges) error {
	next, last := done.Next(done[0].First), done[len(done)-1].End()
	if bounds.First <= next || !s.env.Remembered {
		return nil
	}
	if bounds.First > last+1 {
		return &event.PermanentError{
			Err: fmt.Errorf("the offsets [%d,%d) of %s are gone, and no sink has all of them", next, bounds.First, name),
			Hint: fmt.Sprintf("the topic's retention removed them unread; raise it, and go on without them with: %s",
				source.SetPosition(s.env.Pipeline, name, bounds.First)),
		}
	}
	var gone uint64
	for _, gap := range done.Missing(event.Range{First: next, Count: bounds.First - next}) {
		gone += gap.Count
	}
	s.env.Log.Warn("the front of the partition is gone; the sinks have what was read of it",
		"partition", name, "first offset", bounds.First, "never read, or no records", gone)
	return nil
}

// same compares the last record that the sinks have with the topic's. One that
// compaction removed cannot be compared.
func (s *Source) same(ctx context.Context, name string, partition int32, last event.Range) error {
	offset := int64(last.End() - 1)
	client, err := s.consume(partition, uint64(offset))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			return s.explain(err)
		}
		var first *kgo.Record
		fetches.EachRecord(func(r *kgo.Record) {
			if first == nil {
				first = r
			}
		})
		switch {
		case first == nil:
			continue
		case first.Offset == offset && crc32.Checksum(first.Value, castagnoli) != last.Prints[len(last.Prints)-1]:
			return s.older(name, last.First, fmt.Errorf("the record at offset %d of %s is not the one that the sinks have", offset, name))
		}
		return nil
	}
}

func (s *Source) older(name string, at uint64, err error) error {
	return &event.PermanentError{
		Err: err,
		Hint: fmt.Sprintf("the topic lost records that were acknowledged, and its offsets mean others now; see where it differs and go on from there, at most with: %s",
			source.SetPosition(s.env.Pipeline, name, at)),
	}
}
