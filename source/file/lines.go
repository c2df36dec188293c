package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

const (
	readBuffer   = 256 << 10
	lineBytesMax = 64 << 20
)

// A lineReader splits a stream into lines, or into records of a format whose records may
// span lines.
type lineReader struct {
	in       *bufio.Reader
	format   format.Format
	scanner  format.Scanner // of the record that carry is the start of
	position uint64         // of the next line
	bytes    int64          // read so far
	line     []byte         // the last one
	again    bool           // line is the next one
	carry    []byte         // the start of a line, for the next call
	err      error          // after which nothing can be read

	// With noWait, a batch ends when the next line is not buffered: the stream may
	// block for it.
	noWait bool
	// With fingerprints, the range of a batch has the fingerprints of its lines.
	fingerprints bool
}

func newLineReader(in io.Reader, as format.Format) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, readBuffer), format: as, scanner: as.NewScanner()}
}

// readLine returns the next line without its newline, valid until the next call. At the
// end of the stream it returns io.EOF. If takeLast is set, a last line without a newline
// is returned before; otherwise that line is kept until its rest arrives.
func (l *lineReader) readLine(takeLast bool) ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	if l.again {
		l.again = false
		l.position++
		return l.line, nil
	}
	for {
		part, err := l.in.ReadSlice('\n')
		l.bytes += int64(len(part))
		open := l.scanner.Open(part)
		if err == nil && !open && len(l.carry) == 0 {
			return l.endLine(part), nil // without a copy
		}
		l.carry = append(l.carry, part...)
		switch {
		case open && len(l.carry) > format.QuotedMax:
			l.err = &event.PermanentError{
				Err:  fmt.Errorf("record %d opens a quote and does not close it within %d MiB", l.position+1, format.QuotedMax>>20),
				Hint: "correct the quote, or use format: lines if this is not CSV",
			}
			return nil, l.err
		case open && err == nil: // the newline is inside quotes
		case len(l.carry) > lineBytesMax:
			l.err = &event.PermanentError{
				Err:  fmt.Errorf("line %d is longer than %d MiB", l.position+1, lineBytesMax>>20),
				Hint: "put each event on a line of its own",
			}
			return nil, l.err
		case err == nil, errors.Is(err, io.EOF) && len(l.carry) > 0 && takeLast:
			line := l.carry
			l.carry = l.carry[:0]
			return l.endLine(line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return nil, err
		}
	}
}

func (l *lineReader) endLine(line []byte) []byte {
	l.scanner.Reset()
	l.position++
	l.line = trimNewline(line)
	return l.line
}

// unreadLine makes readLine return the line that it returned last again.
func (l *lineReader) unreadLine() {
	l.again = true
	l.position--
}

func (l *lineReader) skipLines(ctx context.Context, n uint64) error {
	if l.again && n > 0 {
		l.again = false
		l.position, n = l.position+1, n-1
	}
	if l.format.MaySpanLines() {
		return l.skipRecords(ctx, n)
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
			l.position, n = l.position+1, n-1
		}
		_, _ = l.in.Discard(used)
		l.bytes += int64(used)
	}
	return nil
}

// skipRecords skips records that may span lines.
func (l *lineReader) skipRecords(ctx context.Context, n uint64) error {
	for ; n > 0; n-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := l.readLine(false); err != nil {
			return err
		}
	}
	return nil
}

// readHeader reads the first record into a decoder that needs it.
func (l *lineReader) readHeader(to *format.Decoder, takeLast bool) error {
	for to.HasHeader() {
		record, err := l.readLine(takeLast)
		if err != nil {
			return err
		}
		if to.IsBlank(record) {
			continue
		}
		if err := to.ReadHeader(record); err != nil {
			l.err = &event.PermanentError{Err: err, Hint: event.HintOf(err)}
			return l.err
		}
	}
	return nil
}

// readBatch reads lines into b, as documents, until b is full, an empty line follows others,
// or the next line is at position stop. It returns an error only when b is empty.
func (l *lineReader) readBatch(b *event.Batch, to *format.Decoder, limits source.Limits, stop uint64, takeLast bool) (err error) {
	var line []byte
	for size := 0; b.Len() < limits.Events && l.position < stop; {
		if l.noWait && b.Len() > 0 && !l.hasLine() {
			break
		}
		if line, err = l.readLine(takeLast); err != nil {
			break
		}
		if l.format.IsBlank(line) {
			if b.Len() > 0 {
				break // positions in a batch are consecutive
			}
			continue
		}
		if size += len(line); b.Len() > 0 && size > limits.Bytes {
			l.unreadLine()
			break
		}
		if b.Len() == 0 {
			b.Range.First = l.position - 1
		}
		if l.fingerprints {
			b.Range.Fingerprints = append(b.Range.Fingerprints, crc32.Checksum(line, castagnoli))
		}
		b.Data = to.Append(b.Data, line)
		b.Ends = append(b.Ends, uint32(len(b.Data)))
	}
	b.Range.Count = uint64(b.Len())
	if b.Len() > 0 {
		return nil
	}
	return err
}

// hasLine reports whether a whole line is buffered.
func (l *lineReader) hasLine() bool {
	buffered, _ := l.in.Peek(l.in.Buffered())
	return l.again || bytes.IndexByte(buffered, '\n') >= 0
}

// trimNewline removes the newline, and a carriage return before it.
func trimNewline(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
