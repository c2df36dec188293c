package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/perigeedb/perigee/event"
)

const (
	batchEvents  = 1000
	batchBytes   = 1 << 20
	lineBytesMax = 64 << 20 // a line beyond this is a mistake, not an event
)

// lines reads batches of JSON lines. A batch is what has arrived, so that a
// slow stream is answered line by line and a fast one in large batches.
type lines struct {
	in      *bufio.Reader
	read    int   // lines so far
	numbers []int // of the lines in the last batch, counted from 1
	long    []byte
}

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, 256<<10)} }

// next fills b with the next lines that are not blank. io.EOF says there are none.
func (l *lines) next(b *event.Batch) error {
	b.Reset()
	l.numbers = l.numbers[:0]
	for b.Len() < batchEvents && len(b.Data) < batchBytes && (b.Len() == 0 || l.waiting()) {
		line, err := l.line()
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.Append(line)
			l.numbers = append(l.numbers, l.read)
		}
		if err == io.EOF && b.Len() > 0 {
			break
		}
		if err != nil {
			return err
		}
	}
	b.Range.Count = uint64(b.Len())
	return nil
}

// waiting tells whether a whole line is there without waiting for input.
func (l *lines) waiting() bool {
	ready, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}

// line returns the next line, valid until the next call.
func (l *lines) line() ([]byte, error) {
	l.read++
	line, err := l.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	l.long = append(l.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.in.ReadSlice('\n')
		if l.long = append(l.long, line...); len(l.long) > lineBytesMax {
			return nil, fmt.Errorf("line %d is longer than %d bytes", l.read, lineBytesMax)
		}
	}
	return l.long, err
}
