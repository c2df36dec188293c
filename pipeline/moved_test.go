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
	listDelay  time.Duration
	onOpen     func(partition string)
}

func (r *movingSource) Partitions(ctx context.Context) ([]string, error) {
	sleep(ctx, r.listDelay)
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
	if r.onOpen != nil {
		r.onOpen(partition)
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

// A listing that was requested before a partition moved has its new name. The new name
// is opened only after the batches of the old one are delivered.
func TestPartitionMovesDuringListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &movingSource{memorySource: newSlowSource(1), listDelay: 500 * time.Millisecond}
		var running, openedNew atomic.Int64
		q.onOpen = func(partition string) {
			if !strings.HasSuffix(partition, "@1") {
				return
			}
			openedNew.Add(1)
			if n := running.Load(); n != 0 {
				t.Errorf("%s is opened while %d events of the old name are in the script", partition, n)
			}
		}
		slow := testScript{main: func(position uint64, doc string) ([]string, error) {
			if position == 0 && q.generation.Load() == 0 {
				running.Add(1)
				defer running.Add(-1)
				time.Sleep(3 * time.Second)
			}
			return passThrough(position, doc)
		}}
		r := newHarness(t, q, slow, newMemorySink())
		ended := r.start(t.Context())
		time.Sleep(2200 * time.Millisecond) // listings take from 1 to 1.5 s, 2 to 2.5 s, …
		q.generation.Store(1)
		time.Sleep(time.Minute)
		if openedNew.Load() == 0 {
			t.Error("the new name was never opened")
		}
		r.Drain()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}
