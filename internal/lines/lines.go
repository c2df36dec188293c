// Package lines reads lines of bounded length. A Reader is not safe for concurrent use.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// BytesMax is the length from which a line is an error.
const BytesMax = 64 << 20

// A Reader reads lines.
type Reader struct {
	in     *bufio.Reader
	number int
	long   []byte
}

// NewReader returns a Reader of in.
func NewReader(in io.Reader) *Reader { return &Reader{in: bufio.NewReaderSize(in, 256<<10)} }

// Number returns the number of the line that was read last, from 1.
func (r *Reader) Number() int { return r.number }

// IsBuffered reports whether a whole line can be read without waiting for input.
func (r *Reader) IsBuffered() bool {
	ready, _ := r.in.Peek(r.in.Buffered())
	return bytes.IndexByte(ready, '\n') >= 0
}

// Read returns the next line with its line break, valid until the next call. At the end of the
// input it returns the rest with io.EOF.
func (r *Reader) Read() ([]byte, error) {
	r.number++
	line, err := r.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	r.long = append(r.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.in.ReadSlice('\n')
		if r.long = append(r.long, line...); len(r.long) > BytesMax {
			return nil, fmt.Errorf("line %d is longer than %d bytes", r.number, BytesMax)
		}
	}
	return r.long, err
}
