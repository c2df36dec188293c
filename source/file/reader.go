package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// poll is how often a file that is followed is looked at.
const poll = 50 * time.Millisecond

// A reader reads a regular file.
type reader struct {
	source *Source
	name   string
	file   *os.File
	lines  *lines
	done   event.Ranges
}

// enough makes sure that the file still has the lines that the sinks have, and
// goes to the first that they have not.
func (r *reader) enough(ctx context.Context) error {
	if len(r.done) == 0 {
		return nil
	}
	end := r.done[len(r.done)-1].End()
	err := r.lines.skip(ctx, end-1)
	if err == nil {
		_, err = r.lines.next(nil, true) // the last may lack its newline
	}
	if errors.Is(err, io.EOF) {
		return &source.PermanentError{
			Err:  fmt.Errorf("%s has %d lines, but line %d has been delivered", r.source.path, r.lines.line, end),
			Hint: "the file was cut and written anew in place; give the new content a file of its own",
		}
	}
	if err != nil {
		return err
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.lines = newLines(r.file)
	return nil
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	for {
		err := r.fill(ctx, b)
		if err == nil && b.Len() == 0 {
			continue // only empty lines, so far
		}
		if !errors.Is(err, io.EOF) || !r.source.follow {
			return r.explain(err)
		}
		if err := r.cut(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

func (r *reader) fill(ctx context.Context, b *event.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.lines.skip(ctx, r.done.Next(r.lines.line)-r.lines.line); err != nil {
		return err
	}
	wanted := event.Range{First: r.lines.line, Count: uint64(r.source.limits.Events)}
	stop := r.done.Missing(wanted)[0].End() // the first is missing
	return r.lines.fill(b, r.source.limits, stop, !r.source.follow)
}

// cut tells whether the file has become shorter than what was read of it.
func (r *reader) cut() error {
	info, err := r.file.Stat()
	if err != nil {
		return r.explain(err)
	}
	if info.Size() < r.lines.bytes {
		return source.ErrMoved
	}
	return nil
}

func (r *reader) explain(err error) error {
	var permanent *source.PermanentError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &permanent):
		return &source.PermanentError{Err: fmt.Errorf("%s: %w", r.source.path, permanent.Err), Hint: permanent.Hint}
	}
	return fmt.Errorf("read %s: %w", r.source.path, err)
}

// Ack implements source.Reader: a file keeps its lines.
func (r *reader) Ack(context.Context, event.Range) error { return nil }

// Close implements source.Reader.
func (r *reader) Close(context.Context) error { return r.file.Close() }
