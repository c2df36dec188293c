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
	"github.com/perigeedb/perigee/source/format"
)

// pollInterval is how often the end of a followed file is checked for more.
const pollInterval = 50 * time.Millisecond

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A reader reads a regular file.
type reader struct {
	path    string
	limits  source.Limits
	format  format.Format
	name    string // of the partition
	file    *os.File
	mayGrow func() bool      // whether the file may get more lines
	onEnd   func(read int64) // called at the final end with the number of bytes read; may be nil

	in      io.ReadCloser
	lines   *lineReader
	decoder *format.Decoder
	done    event.Ranges
	final   bool // the file does not grow any more
}

// newReader makes a reader from its settings and verifies what was delivered. It takes
// ownership of the file, also when it fails.
func newReader(ctx context.Context, settings reader, done event.Ranges) (*reader, error) {
	r := &settings
	r.done = slices.Clone(done)
	err := r.rewind()
	if err == nil {
		err = r.verifyDelivered(ctx)
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

// rewind starts reading at the first line again.
func (r *reader) rewind() (err error) {
	if r.in != nil {
		r.in.Close()
	}
	if _, err = r.file.Seek(0, io.SeekStart); err != nil {
		return r.wrapError(err)
	}
	if r.in, err = openContent(r.file); err != nil {
		return r.wrapError(err)
	}
	r.lines, r.decoder = newLineReader(r.in, r.format), r.format.NewDecoder()
	r.lines.fingerprints = true
	return nil
}

// verifyDelivered compares the lines of the file with the fingerprints of those that
// the sinks have.
func (r *reader) verifyDelivered(ctx context.Context) error {
	var line []byte
	for i, known := range r.done {
		for known.Count > 0 {
			if len(known.Fingerprints) == 0 {
				known = known.Tail(known.Count - 1)
			}
			err := r.lines.skipLines(ctx, known.First-r.lines.position)
			if err == nil {
				line, err = r.lines.readLine(true) // the last line may have no newline
			}
			if errors.Is(err, io.EOF) {
				return rewrittenError("%s has %d lines, but line %d was delivered", r.path, r.lines.position, r.done[len(r.done)-1].End())
			}
			if err != nil {
				return err
			}
			if len(known.Fingerprints) > 0 && known.Fingerprints[0] != crc32.Checksum(line, castagnoli) {
				return rewrittenError("line %d of %s differs from the line that was delivered", known.First+1, r.path)
			}
			known = known.Tail(1)
		}
		r.done[i].Fingerprints = nil
	}
	return nil
}

func rewrittenError(format string, args ...any) error {
	return &event.PermanentError{
		Err:  fmt.Errorf(format, args...),
		Hint: "the file was rewritten in place: put the new content into a new file",
	}
}

// Read implements source.Reader.
func (r *reader) Read(ctx context.Context, b *event.Batch) error {
	b.Reset()
	b.Partition = r.name
	for {
		err := r.readBatch(ctx, b)
		if err == nil && b.Len() == 0 {
			continue // only empty lines so far
		}
		if !errors.Is(err, io.EOF) {
			return r.wrapError(err)
		}
		if r.final {
			if r.onEnd != nil {
				r.onEnd(r.lines.bytes)
			}
			return io.EOF
		}
		if err := r.checkTruncation(); err != nil {
			return err
		}
		if r.final = !r.mayGrow(); r.final {
			continue // read once more: a last line without a newline counts now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func (r *reader) readBatch(ctx context.Context, b *event.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.lines.readHeader(r.decoder, r.final); err != nil {
		return err
	}
	if err := r.lines.skipLines(ctx, r.done.Next(r.lines.position)-r.lines.position); err != nil {
		return err
	}
	wanted := event.Range{First: r.lines.position, Count: uint64(r.limits.Events)}
	stop := r.done.Missing(wanted)[0].End() // the first position is missing
	return r.lines.readBatch(b, r.decoder, r.limits, stop, r.final)
}

// checkTruncation returns source.ErrMoved when the file is shorter than what was read.
func (r *reader) checkTruncation() error {
	info, err := r.file.Stat()
	if err != nil {
		return r.wrapError(err)
	}
	if _, plain := r.in.(plainContent); plain && info.Size() < r.lines.bytes {
		return source.ErrMoved
	}
	return nil
}

// wrapError adds the path to an error.
func (r *reader) wrapError(err error) error {
	var permanent *event.PermanentError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &permanent):
		return &event.PermanentError{Err: fmt.Errorf("%s: %w", r.path, permanent.Err), Hint: permanent.Hint}
	}
	return fmt.Errorf("read %s: %w", r.path, err)
}

// Ack implements source.Reader. A file keeps its lines.
func (r *reader) Ack(context.Context, event.Range) error { return nil }

// Lag implements source.Reader. Lines are not counted ahead.
func (r *reader) Lag() uint64 { return 0 }

// Close implements source.Reader.
func (r *reader) Close(context.Context) error {
	if r.in != nil {
		r.in.Close()
	}
	return r.file.Close()
}
