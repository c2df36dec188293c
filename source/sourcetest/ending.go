package sourcetest

import (
	"context"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// EndAt wraps a source that never ends: its readers return io.EOF at the position that end
// returns when they are opened. The source must know its bounds.
func EndAt(s source.Source, end func(ctx context.Context) (uint64, error)) source.Source {
	return endingSource{s, end}
}

type endingSource struct {
	source.Source
	end func(ctx context.Context) (uint64, error)
}

func (e endingSource) Open(ctx context.Context, partition string, done event.Ranges) (source.Reader, error) {
	end, err := e.end(ctx)
	if err != nil {
		return nil, err
	}
	r, err := e.Source.Open(ctx, partition, done)
	if err != nil {
		return nil, err
	}
	return &endingReader{r, done, 0, end}, nil
}

func (e endingSource) Traits() source.Traits {
	t := e.Source.Traits()
	return source.Traits{Bounds: t.Bounds, Unit: t.Unit}
}

type endingReader struct {
	source.Reader
	done      event.Ranges
	next, end uint64
}

func (r *endingReader) Read(ctx context.Context, b *event.Batch) error {
	if r.done.Next(r.next) >= r.end {
		return io.EOF
	}
	err := r.Reader.Read(ctx, b)
	r.next = b.Range.End()
	return err
}
