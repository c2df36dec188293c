package resp

import (
	"bytes"
	"errors"
	"io"
)

const readBuffer = 256 << 10

// A buffer holds what has come over a connection and was not read yet. A
// bufio.Reader tells only by calls what it holds; here it is looked at in place.
type buffer struct {
	from       io.Reader
	data       []byte
	first, end int // what is there, in data
}

func (b *buffer) ahead() []byte { return b.data[b.first:b.end] }

// skipTo goes on where rest begins, which is the end of what is ahead.
func (b *buffer) skipTo(rest []byte) { b.first = b.end - len(rest) }

// some returns what is ahead; it waits until there is something.
func (b *buffer) some() ([]byte, error) {
	for b.first == b.end {
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
	return b.ahead(), nil
}

// line reads up to the end of a line, and with it. What it returns is valid until
// more is read.
func (b *buffer) line() ([]byte, error) {
	for seen := 0; ; {
		if n := bytes.IndexByte(b.ahead()[seen:], '\n'); n >= 0 {
			line := b.ahead()[:seen+n+1]
			b.first += len(line)
			return line, nil
		}
		seen = len(b.ahead())
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// fill waits for more.
func (b *buffer) fill() error {
	b.end = copy(b.data, b.ahead())
	b.first = 0
	if b.end == len(b.data) {
		return errors.New("redis sent a line that does not end")
	}
	n, err := b.from.Read(b.data[b.end:])
	b.end += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
