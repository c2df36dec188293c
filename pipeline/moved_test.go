package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// movingSource is a source whose partitions can all get a new identity.
type movingSource struct {
	*memorySource
	generation atomic.Int64
}

func (r *movingSource) Partitions(ctx context.Context) ([]string, error) {
	names, err := r.memorySource.Partitions(ctx)
	for i := range names {
		names[i] = fmt.Sprintf("%s@%d", names[i], r.generation.Load())
	}
	return names, err
}

func (r *movingSource) Open(ctx context.Context, partition string, _ event.Ranges) (source.Reader, error) {
	name, generation, _ := strings.Cut(partition, "@")
	if r.now() != generation {
		return nil, source.ErrMoved
	}
	reader, err := r.memorySource.Open(ctx, name, nil)
	return &movingReader{reader, r, generation}, err
}

func (r *movingSource) now() string { return fmt.Sprint(r.generation.Load()) }

type movingReader struct {
	source.Reader
	of         *movingSource
	generation string
}

func (r *movingReader) Read(ctx context.Context, b *event.Batch) error {
	err := r.Reader.Read(ctx, b)
	if r.of.now() != r.generation {
		return source.ErrMoved
	}
	return err
}

// Many partitions that move at once are listed and assigned again: the exit of each
// does not delay the next listing.
func TestAllPartitionsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &movingSource{memorySource: newSlowSource(12)}
		r := newHarness(t, q, testScript{main: passThrough}, newSharedSink())
		r.config.Worker = "one"
		r.config.Lease = 2 * time.Second
		r.Pipeline = New(r.config)
		ended := r.start(t.Context())
		for generation := range 3 {
			q.generation.Store(int64(generation))
			time.Sleep(10 * time.Second)
			if s := r.Stats(); s.OpenPartitions != 12 || s.Leases.Held != 12 {
				t.Errorf("generation %d: %d partitions are open and %d held, want 12", generation, s.OpenPartitions, s.Leases.Held)
			}
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
