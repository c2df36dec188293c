package deadletter

import (
	"context"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// Feed is what Join makes a source of.
type Feed struct {
	Pipeline string
	Source   source.Source // the pipeline's own
	Limits   source.Limits
	Sinks    []string // the names of the pipeline's
	// Remembered says that the sinks remember ranges, as source.Env has it.
	Remembered bool
}

// Join makes a source of the pipeline's own and of the letters in its queue. One
// batch of the queue at a time is a partition, which ends. What the joined source
// is told to be durable, by acknowledgements and when a partition is opened,
// settles letters.
func (s *Store) Join(f Feed) source.Source { return &joined{f, s} }

type joined struct {
	Feed
	store *Store
}

// Partitions implements source.Source.
func (j *joined) Partitions(ctx context.Context) ([]string, error) {
	names, err := j.Source.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	batch, err := j.store.offer(j.Pipeline)
	if err != nil {
		return nil, err
	}
	if batch != "" {
		names = append(names[:len(names):len(names)], batch)
	}
	return names, nil
}

// Open implements source.Source.
func (j *joined) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	for _, r := range done {
		if err := j.store.settle(j.Pipeline, partition, r); err != nil {
			return nil, err
		}
	}
	if batchName.MatchString(partition) {
		return j.openBatch(partition, done)
	}
	r, err := j.Source.Open(ctx, partition, done)
	if err != nil {
		return nil, err
	}
	return &settlingReader{r, j, partition}, nil
}

// Close implements source.Source. The store stays open.
func (j *joined) Close() error { return j.Source.Close() }

// Traits implements source.Source. A batch of the queue is local.
func (j *joined) Traits() source.Traits {
	traits := j.Source.Traits()
	local := traits.Local
	traits.Local = func(partition string) bool {
		return batchName.MatchString(partition) || local != nil && local(partition)
	}
	return traits
}

// A settlingReader settles letters before the source gives their events up.
type settlingReader struct {
	source.Reader
	joined    *joined
	partition string
}

// Ack implements source.Reader.
func (r *settlingReader) Ack(ctx context.Context, a event.Range) error {
	if err := r.joined.store.settle(r.joined.Pipeline, r.partition, a); err != nil {
		return err
	}
	return r.Reader.Ack(ctx, a)
}
