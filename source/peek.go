package source

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/perigeedb/perigee/event"
)

// peekIdle is how long PeekPartitions waits for an event where it cannot tell that it has read the
// last one: positions at the end of a partition may have no event.
const peekIdle = 3 * time.Second

// PeekPartitions is Traits.Peek for a source whose Partitions and Open change nothing: it reads
// every partition from its first event to the one that is last now, and acknowledges nothing.
func PeekPartitions(ctx context.Context, s Source, visit func(*event.Batch) error) error {
	names, err := s.Partitions(ctx)
	if err != nil {
		return err
	}
	var bounds map[string]event.Range
	if find := s.Traits().Bounds; find != nil {
		if bounds, err = find(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		bound, bounded := bounds[name]
		if bounded && bound.Count == 0 {
			continue
		}
		if err := peekPartition(ctx, s, name, bound.End(), bounded, visit); err != nil {
			return err
		}
	}
	return nil
}

// peekPartition reads a partition to its end, which is a position if bounded is set.
func peekPartition(ctx context.Context, s Source, name string, end uint64, bounded bool, visit func(*event.Batch) error) (err error) {
	r, err := s.Open(ctx, name, nil)
	if err != nil {
		return err
	}
	defer func() {
		if closed := r.Close(ctx); err == nil {
			err = closed
		}
	}()
	var b event.Batch
	for {
		err := readWithin(ctx, r, &b)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil
		case err != nil:
			return err
		}
		if err := visit(&b); err != nil {
			return err
		}
		if bounded && b.Range.End() >= end {
			return nil
		}
	}
}

func readWithin(ctx context.Context, r Reader, b *event.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, peekIdle)
	defer cancel()
	return r.Read(ctx, b)
}
