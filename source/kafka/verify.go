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
	if next := done.Next(done[0].First); bounds.First > next && s.env.Remembered {
		return &source.PermanentError{
			Err: fmt.Errorf("the offsets [%d,%d) of %s are gone, and no sink has all of them", next, bounds.First, name),
			Hint: fmt.Sprintf("the topic's retention removed them unread; raise it, and go on without them with: perigee position set %s %s %d",
				s.env.Pipeline, name, bounds.First),
		}
	}
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
	return &source.PermanentError{
		Err: err,
		Hint: fmt.Sprintf("the topic lost records that were acknowledged, and its offsets mean others now; see where it differs and go on with: perigee position set %s %s N, with N at most %d",
			s.env.Pipeline, name, at),
	}
}
