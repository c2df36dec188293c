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
	batchEventsMax = 1000
	batchBytesMax  = 1 << 20
	lineBytesMax   = 64 << 20 // a longer line is a mistake, not an event
)

// A lineReader reads batches of JSON lines. A batch is what has arrived, so that the
// lines of a slow stream are answered one by one, and those of a fast one in large
// batches.
type lineReader struct {
	in      *bufio.Reader
	read    int   // lines so far
	numbers []int // of the lines in the last batch, counted from 1
	long    []byte
}

func newLineReader(in io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 256<<10)}
}

// readBatch fills b with the next lines that are not blank. It returns io.EOF if there
// are none.
func (l *lineReader) readBatch(b *event.Batch) error {
	b.Reset()
	l.numbers = l.numbers[:0]
	for b.Len() < batchEventsMax && len(b.Data) < batchBytesMax && (b.Len() == 0 || l.isBuffered()) {
		line, err := l.readLine()
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

// isBuffered reports whether a whole line can be read without waiting for input.
func (l *lineReader) isBuffered() bool {
	ready, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}

// readLine returns the next line, valid until the next call.
func (l *lineReader) readLine() ([]byte, error) {
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
