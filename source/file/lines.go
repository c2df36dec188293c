package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

const (
	readBuffer = 256 << 10
	longest    = 64 << 20 // bytes of a line
)

// lines cuts a stream into lines.
type lines struct {
	in    *bufio.Reader
	line  uint64 // position of the next
	bytes int64  // read so far
	carry []byte // a line, or the beginning of one, for the next batch
	whole bool   // whether carry is a whole line
	fault error  // after which nothing can be read

	// Hasty lines do not wait for more than one: the stream may keep them waiting.
	hasty bool
}

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, readBuffer)} }

// next appends the next line to dst, without its end. At the end of the stream it
// returns io.EOF, with a last line that has no newline if there is one and
// partial says that it counts; otherwise the line is kept until the rest comes.
func (l *lines) next(dst []byte, partial bool) ([]byte, error) {
	if l.fault != nil {
		return dst, l.fault
	}
	if l.whole {
		dst = append(dst, l.carry...)
		l.carry, l.whole = l.carry[:0], false
		l.line++
		return dst, nil
	}
	start := len(dst)
	dst = append(dst, l.carry...)
	l.carry = l.carry[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		l.bytes += int64(len(part))
		dst = append(dst, part...)
		switch {
		case len(dst)-start > longest:
			l.fault = &event.PermanentError{
				Err:  fmt.Errorf("line %d is longer than %d MiB", l.line+1, longest>>20),
				Hint: "is it NDJSON, one object per line?",
			}
			return dst[:start], l.fault
		case err == nil:
			l.line++
			return dst[:start+len(trimEnd(dst[start:]))], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(dst) > start && partial:
			l.line++
			return dst[:start+len(trimEnd(dst[start:]))], nil
		default:
			l.carry = append(l.carry, dst[start:]...)
			return dst[:start], err
		}
	}
}

// putBack gives the line that next has just returned back.
func (l *lines) putBack(line []byte) {
	l.carry, l.whole = append(l.carry[:0], line...), true
	l.line--
}

// skip passes over n lines.
func (l *lines) skip(ctx context.Context, n uint64) error {
	if l.whole && n > 0 {
		l.carry, l.whole = l.carry[:0], false
		l.line, n = l.line+1, n-1
	}
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := l.in.Peek(1); err != nil {
			return err
		}
		chunk, _ := l.in.Peek(l.in.Buffered())
		used := 0
		for n > 0 {
			i := bytes.IndexByte(chunk[used:], '\n')
			if i < 0 {
				used = len(chunk)
				break
			}
			used += i + 1
			l.line, n = l.line+1, n-1
		}
		_, _ = l.in.Discard(used)
		l.bytes += int64(used)
	}
	return nil
}

// fill reads lines into b until it is full, a line is empty after others were
// read, or the line at position stop comes. An error counts only when there is no
// line before it.
func (l *lines) fill(b *event.Batch, limits source.Limits, stop uint64, partial bool) (err error) {
	for b.Len() < limits.Events && l.line < stop {
		if l.hasty && b.Len() > 0 && !l.ready() {
			break
		}
		start := len(b.Data)
		if b.Data, err = l.next(b.Data, partial); err != nil {
			break
		}
		line := b.Data[start:]
		if len(bytes.TrimSpace(line)) == 0 {
			b.Data = b.Data[:start]
			if b.Len() > 0 {
				break // positions in a batch follow each other
			}
			continue
		}
		if b.Len() > 0 && len(b.Data) > limits.Bytes {
			l.putBack(line)
			b.Data = b.Data[:start]
			break
		}
		if b.Len() == 0 {
			b.Range.First = l.line - 1
		}
		b.Ends = append(b.Ends, uint32(len(b.Data)))
	}
	b.Range.Count = uint64(b.Len())
	if b.Len() > 0 {
		return nil
	}
	return err
}

// ready tells whether a line can be had without waiting.
func (l *lines) ready() bool {
	buffered, _ := l.in.Peek(l.in.Buffered())
	return l.whole || bytes.IndexByte(buffered, '\n') >= 0
}

// trimEnd takes the newline off, and a carriage return before it.
func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
