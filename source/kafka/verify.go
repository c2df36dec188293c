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

// verifyDone checks that the partition still has the records that the sinks committed,
// and that no other record is gone. A partition only grows at its end, so it compares
// the last committed record alone.
func (s *Source) verifyDone(ctx context.Context, name string, partition int32, bounds event.Range, done event.Ranges) error {
	if len(done) == 0 {
		return nil
	}
	last := done[len(done)-1]
	if bounds.End() < last.End() {
		return s.rollbackError(name, bounds.End(), fmt.Errorf("the sinks committed %s up to offset %d, but it ends at %d", name, last.End(), bounds.End()))
	}
	if len(last.Fingerprints) > 0 && last.End() > bounds.First {
		if err := s.compareLastRecord(ctx, name, partition, last); err != nil {
			return err
		}
	}
	return s.checkGap(name, bounds, done)
}

// checkGap returns an error when retention removed records that the sinks do not have.
// Offsets that never had a record, which transactions and compaction leave, look the
// same once they are removed. So removed offsets between committed ones are only
// logged, and so is the one after them, where a transaction may end.
func (s *Source) checkGap(name string, bounds event.Range, done event.Ranges) error {
	next, last := done.Next(done[0].First), done[len(done)-1].End()
	if bounds.First <= next || !s.env.Remembered {
		return nil
	}
	if bounds.First > last+1 {
		return &event.PermanentError{
			Err: fmt.Errorf("offsets [%d,%d) of %s were removed before every sink had them", next, bounds.First, name),
			Hint: fmt.Sprintf("the topic's retention removed them: raise it, and skip them with: %s",
				source.SetPosition(s.env.Pipeline, name, bounds.First)),
		}
	}
	var removed uint64
	for _, gap := range done.Missing(event.Range{First: next, Count: bounds.First - next}) {
		removed += gap.Count
	}
	s.env.Log.Warn("the front of the partition was removed; the sinks have everything that was read of it",
		"partition", name, "first offset", bounds.First, "offsets never read or without a record", removed)
	return nil
}

// compareLastRecord compares the last record that the sinks committed with the one in
// the topic, unless compaction removed that.
func (s *Source) compareLastRecord(ctx context.Context, name string, partition int32, last event.Range) error {
	offset := int64(last.End() - 1)
	client, err := s.newConsumer(partition, uint64(offset))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			return s.wrapError(err)
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
		case first.Offset == offset && crc32.Checksum(first.Value, castagnoli) != last.Fingerprints[len(last.Fingerprints)-1]:
			return s.rollbackError(name, last.First, fmt.Errorf("the record at offset %d of %s differs from the one that the sinks committed", offset, name))
		}
		return nil
	}
}

// rollbackError says that offsets from at on may have other records than before.
func (s *Source) rollbackError(name string, at uint64, err error) error {
	return &event.PermanentError{
		Err: err,
		Hint: fmt.Sprintf("the topic lost acknowledged records, and its offsets have other records now: find the first offset that differs and continue there, at the latest with: %s",
			source.SetPosition(s.env.Pipeline, name, at)),
	}
}
