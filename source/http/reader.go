package http

import (
	"context"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/spool"
)

// A reader reads the spool.
type reader struct {
	source *Source
	spool  *spool.Spool
	name   string
	in     *spool.Reader // nil after an error
	done   event.Ranges
	next   uint64

	mu    sync.Mutex
	acked event.Ranges
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	from := r.done.Next(r.next)
	limits := r.source.env.Limits
	stop := r.done.Missing(event.Range{First: from, Count: uint64(limits.Events)})[0].End() // the first is missing
	if r.in == nil {
		in, err := r.spool.NewReader(min(from, r.end()))
		if err != nil {
			return err
		}
		r.in = in
	}
	if err := r.in.ReadBatch(ctx, b, from, spool.Limits{Stop: stop, Events: limits.Events, Bytes: limits.Bytes}); err != nil {
		_ = r.in.Close()
		r.in = nil
		return err
	}
	r.next = b.Range.End()
	return nil
}

func (r *reader) end() uint64 {
	_, end := r.spool.Bounds()
	return end
}

// Lag implements source.Reader.
func (r *reader) Lag() (lag uint64) {
	if end := r.end(); end > r.next {
		for _, gap := range r.done.Missing(event.Range{First: r.next, Count: end - r.next}) {
			lag += gap.Count
		}
	}
	return lag
}

// Ack implements source.Reader.
func (r *reader) Ack(_ context.Context, done event.Range) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.Add(event.Range{First: done.First, Count: done.Count})
	return r.spool.Trim(r.acked.Next(0))
}

// Close implements source.Reader.
func (r *reader) Close(context.Context) error {
	if r.in == nil {
		return nil
	}
	return r.in.Close()
}
