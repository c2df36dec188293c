package resp

import (
	"bytes"
	"errors"
	"io"
)

const replyBufferBytes = 256 << 10

// A replyBuffer holds the bytes of a connection that were not read yet. Unlike a
// bufio.Reader, it can be parsed in place.
type replyBuffer struct {
	from       io.Reader
	data       []byte
	first, end int // of the unread bytes in data
}

func (b *replyBuffer) unread() []byte { return b.data[b.first:b.end] }

// setUnread makes rest, a tail of unread, the bytes to read next.
func (b *replyBuffer) setUnread(rest []byte) { b.first = b.end - len(rest) }

// waitUnread returns the unread bytes. It waits for at least one.
func (b *replyBuffer) waitUnread() ([]byte, error) {
	for b.first == b.end {
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
	return b.unread(), nil
}

// readLine reads a line with its newline. It is valid until more is read.
func (b *replyBuffer) readLine() ([]byte, error) {
	for seen := 0; ; {
		if n := bytes.IndexByte(b.unread()[seen:], '\n'); n >= 0 {
			line := b.unread()[:seen+n+1]
			b.first += len(line)
			return line, nil
		}
		seen = len(b.unread())
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// fill waits for more bytes.
func (b *replyBuffer) fill() error {
	b.end = copy(b.data, b.unread())
	b.first = 0
	if b.end == len(b.data) {
		return errors.New("redis sent a line that is too long")
	}
	n, err := b.from.Read(b.data[b.end:])
	b.end += n
	if n > 0 {
		return nil // the next read returns the error again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
