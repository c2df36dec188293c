package file

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// poll is how often a file that is followed is looked at.
const poll = 50 * time.Millisecond

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A reader reads a regular file.
type reader struct {
	path   string
	limits source.Limits
	name   string
	file   *os.File
	wait   func() bool      // whether there may be more lines at the end
	ended  func(read int64) // told when there are none, and how many bytes there were; may be nil

	in    unpacked
	lines *lines
	done  event.Ranges
	last  bool // nobody adds to the file any more
}

// newReader takes the file over.
func newReader(ctx context.Context, begin reader, done event.Ranges) (*reader, error) {
	r := &begin
	r.done = slices.Clone(done)
	err := r.rewind()
	if err == nil {
		err = r.verify(ctx)
	}
	if err == nil {
		err = r.rewind()
	}
	if err != nil {
		_ = r.Close(ctx)
		return nil, err
	}
	return r, nil
}

// rewind goes back to the beginning.
func (r *reader) rewind() (err error) {
	if r.in != nil {
		r.in.Close()
	}
	if _, err = r.file.Seek(0, io.SeekStart); err != nil {
		return r.explain(err)
	}
	if r.in, err = unpack(r.file); err != nil {
		return r.explain(err)
	}
	r.lines = newLines(r.in)
	return nil
}

// verify makes sure that the file still has the lines that the sinks have.
func (r *reader) verify(ctx context.Context) error {
	var line []byte
	for i, known := range r.done {
		for known.Count > 0 {
			if len(known.Prints) == 0 {
				known = known.Tail(known.Count - 1)
			}
			err := r.lines.skip(ctx, known.First-r.lines.line)
			if err == nil {
				line, err = r.lines.next(line[:0], true) // the last may lack its newline
			}
			if errors.Is(err, io.EOF) {
				return r.writtenAnew("%s has %d lines, but line %d has been delivered", r.path, r.lines.line, r.done[len(r.done)-1].End())
			}
			if err != nil {
				return err
			}
			if len(known.Prints) > 0 && known.Prints[0] != crc32.Checksum(line, castagnoli) {
				return r.writtenAnew("line %d of %s is not the one that has been delivered", known.First+1, r.path)
			}
			known = known.Tail(1)
		}
		r.done[i].Prints = nil
	}
	return nil
}

func (r *reader) writtenAnew(format string, args ...any) error {
	return &event.PermanentError{
		Err:  fmt.Errorf(format, args...),
		Hint: "the file was written anew in place; give the new content a file of its own",
	}
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
		if !errors.Is(err, io.EOF) {
			return r.explain(err)
		}
		if r.last {
			if r.ended != nil {
				r.ended(r.lines.bytes)
			}
			return io.EOF
		}
		if err := r.cut(); err != nil {
			return err
		}
		if r.last = !r.wait(); r.last {
			continue // once more: a last line without its end counts now
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
	wanted := event.Range{First: r.lines.line, Count: uint64(r.limits.Events)}
	stop := r.done.Missing(wanted)[0].End() // the first is missing
	err := r.lines.fill(b, r.limits, stop, r.last)
	for i := range b.Len() {
		b.Range.Prints = append(b.Range.Prints, crc32.Checksum(b.Doc(i), castagnoli))
	}
	return err
}

// cut tells whether the file has become shorter than what was read of it.
func (r *reader) cut() error {
	info, err := r.file.Stat()
	if err != nil {
		return r.explain(err)
	}
	if _, plain := r.in.(plain); !plain {
		return nil
	}
	if info.Size() < r.lines.bytes {
		return source.ErrMoved
	}
	return nil
}

func (r *reader) explain(err error) error {
	var permanent *event.PermanentError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &permanent):
		return &event.PermanentError{Err: fmt.Errorf("%s: %w", r.path, permanent.Err), Hint: permanent.Hint}
	}
	return fmt.Errorf("read %s: %w", r.path, err)
}

// Ack implements source.Reader: a file keeps its lines.
func (r *reader) Ack(context.Context, event.Range) error { return nil }

// Lag implements source.Reader: lines are not counted ahead.
func (r *reader) Lag() uint64 { return 0 }

// Close implements source.Reader.
func (r *reader) Close(context.Context) error {
	if r.in != nil {
		r.in.Close()
	}
	return r.file.Close()
}
