// Package resp is a connection to Redis, or to another server with its protocol,
// RESP 2.
//
// The caller queues commands, sends them in one write, and reads the replies in the
// same order, piece by piece. The package exists because of the events: they are copied
// from the socket's buffer into a batch, at 0.13 to 0.20 µs an event and without an
// allocation, and a reply may stay half read until there is a batch for the rest.
// rueidis needs 0.52 to 0.54 µs for the same (200,000 events of 362 bytes, LRANGE of
// 1000, copy and fingerprint). For the few other commands it would add 17 MB to the
// binary, 2.8 MB of heap per client, and a PING each second that a user with few
// permissions may not send.
//
// A Conn is for one goroutine. After an error that is not a ReplyError it must be
// closed.
package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const replyTimeout = 30 * time.Second

// A Conn is a connection.
type Conn struct {
	net net.Conn
	in  replyBuffer
	out []byte // queued commands
}

// A ReplyError is an error that Redis replied to a command with.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Code returns the first word: ERR, WRONGTYPE, NOSCRIPT and so on.
func (e ReplyError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// An UnexpectedReply is a reply of another type than the caller reads.
type UnexpectedReply string

func (e UnexpectedReply) Error() string { return string(e) }

// WithContext runs do, whose reads and writes fail when ctx ends or after replyTimeout.
func (c *Conn) WithContext(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.net.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.net.Close() }

// Queue queues a command with its arguments.
func (c *Conn) Queue(args ...string) {
	c.QueueHeader(len(args))
	for _, a := range args {
		c.QueueArg(a)
	}
}

// QueueHeader starts a command of n arguments, the name of the command included. The
// caller queues each with QueueArg or QueueBytes.
func (c *Conn) QueueHeader(n int) { c.appendHeader('*', n) }

// QueueArg queues an argument.
func (c *Conn) QueueArg(s string) {
	c.appendHeader('$', len(s))
	c.out = append(append(c.out, s...), "\r\n"...)
}

// QueueBytes queues an argument.
func (c *Conn) QueueBytes(b []byte) {
	c.appendHeader('$', len(b))
	c.out = append(append(c.out, b...), "\r\n"...)
}

func (c *Conn) appendHeader(kind byte, n int) {
	c.out = strconv.AppendInt(append(c.out, kind), int64(n), 10)
	c.out = append(c.out, "\r\n"...)
}

// QueueEval queues a script. It sends the text each time: that is a few hundred bytes
// for a whole batch, and the server need not remember the script.
func (c *Conn) QueueEval(script string, keys []string, args ...string) {
	c.QueueHeader(3 + len(keys) + len(args))
	c.QueueArg("EVAL")
	c.QueueArg(script)
	c.QueueArg(strconv.Itoa(len(keys)))
	for _, k := range keys {
		c.QueueArg(k)
	}
	for _, a := range args {
		c.QueueArg(a)
	}
}

// outBufferMax is the size above which the buffer for commands is not kept.
const outBufferMax = 4 << 20

// Flush sends what is queued.
func (c *Conn) Flush() error {
	_, err := c.net.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > outBufferMax {
		c.out = nil
	}
	return err
}

// ReadHeader reads the first line of a reply, which must have the given type, and
// returns it without the type byte. It is valid until the next read. A reply that is an
// error is returned as a ReplyError.
func (c *Conn) ReadHeader(kind byte) ([]byte, error) {
	line, err := c.readLine()
	if err != nil {
		return nil, err
	}
	if line[0] == '-' {
		return nil, ReplyError(line[1:])
	}
	if line[0] != kind {
		return nil, UnexpectedReply(fmt.Sprintf("redis sent %q, expected a reply that starts with %q", line, kind))
	}
	return line[1:], nil
}

func (c *Conn) readLine() ([]byte, error) {
	line, err := c.in.readLine()
	if err != nil {
		return nil, connectionError(err)
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("redis sent %q, which is not its protocol", line)
	}
	return line[:len(line)-2], nil
}

// ReadLength reads the first line of a reply when it is a number: an integer, or the
// length of an array or a string, which is -1 for nil.
func (c *Conn) ReadLength(kind byte) (int, error) {
	if n, rest, ok := ParseLength(c.in.unread(), kind); ok {
		c.in.setUnread(rest)
		return n, nil
	}
	text, err := c.ReadHeader(kind)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("redis sent %q, expected a number", text)
	}
	return n, nil
}

// Buffered returns the bytes that have arrived and were not read. They are valid until
// the next read.
func (c *Conn) Buffered() []byte { return c.in.unread() }

// SetBuffered makes rest, a tail of what Buffered returned, the bytes to read next.
func (c *Conn) SetBuffered(rest []byte) { c.in.setUnread(rest) }

// ParseLength parses the length of an array or a string at the start of b, and returns
// what follows it. It is ReadLength for a caller that parses what is Buffered. ok is
// false when b does not start with a whole line of that type.
func ParseLength(b []byte, kind byte) (n int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != kind {
		return 0, nil, false
	}
	for i, c := range b[1:min(len(b), 12)] {
		if c == '\r' && i > 0 && len(b) > i+2 {
			return n, b[i+3:], true
		}
		if c < '0' || c > '9' {
			return 0, nil, false
		}
		n = 10*n + int(c-'0')
	}
	return 0, nil, false
}

// AppendBody appends the bytes of a string whose length was read.
func (c *Conn) AppendBody(dst []byte, size int) ([]byte, error) {
	// In one append, so that dst is not grown and cleared first.
	if ahead := c.in.unread(); len(ahead) >= size+2 {
		c.in.setUnread(ahead[size+2:])
		return append(dst, ahead[:size]...), nil
	}
	for left := size + 2; left > 0; {
		ahead, err := c.in.waitUnread()
		if err != nil {
			return dst, connectionError(err)
		}
		part := ahead[:min(left, len(ahead))]
		dst = append(dst, part...)
		left -= len(part)
		c.in.setUnread(ahead[len(part):])
	}
	return dst[:len(dst)-2], nil
}

// ReadString reads a short string. nil reads as "".
func (c *Conn) ReadString() (string, error) {
	size, err := c.ReadLength('$')
	if err != nil || size < 0 {
		return "", err
	}
	b, err := c.AppendBody(nil, size)
	return string(b), err
}

// ReadReply reads a whole reply: nil, an int64, a string, or a []any of these. It
// returns a ReplyError as the error, but keeps one inside an array as a value.
func (c *Conn) ReadReply() (any, error) {
	v, err := c.readReply()
	if replyErr, ok := v.(ReplyError); ok && err == nil {
		return nil, replyErr
	}
	return v, err
}

func (c *Conn) readReply() (any, error) {
	line, err := c.readLine()
	if err != nil {
		return nil, err
	}
	text := string(line[1:])
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("redis sent %q, expected a number", text)
	case line[0] == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case line[0] == '$':
		b, err := c.AppendBody(nil, int(n))
		return string(b), err
	}
	all := make([]any, n)
	for i := range all {
		if all[i], err = c.readReply(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Do sends one command and reads its reply. No other command may be queued.
func (c *Conn) Do(ctx context.Context, args ...string) (v any, err error) {
	err = c.WithContext(ctx, func() error {
		c.Queue(args...)
		if err := c.Flush(); err != nil {
			return err
		}
		v, err = c.ReadReply()
		return err
	})
	return v, err
}

// connectionError replaces io.EOF, which the pipeline would take for the end of the
// partition.
func connectionError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("redis closed the connection")
	}
	return err
}
