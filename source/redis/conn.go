package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	connectTime = 5 * time.Second
	silence     = 30 * time.Second // of a server, after which it counts as away
	readBuffer  = 256 << 10
)

// A conn is a connection that speaks RESP 2. Commands are queued and sent in one
// write, and the caller reads the replies in that order. It is for one goroutine,
// and of no use after an error.
//
// It exists because of the items: they go from the socket's buffer into the
// batch, an event at 0.13 to 0.20 µs, without an allocation, and a reply may stay
// half read until there is a batch for the rest. rueidis needs 0.52 to 0.54 µs
// for the same (200,000 events of 362 bytes, LRANGE of 1000, copy and fingerprint).
type conn struct {
	net net.Conn
	in  *bufio.Reader
	out []byte
}

// A replyError is what Redis refused a command with.
type replyError string

func (e replyError) Error() string { return string(e) }

func (s *Source) dial(ctx context.Context) (*conn, error) {
	d := net.Dialer{Timeout: connectTime}
	nc, err := d.DialContext(ctx, "tcp", s.config.Address)
	if err != nil {
		return nil, err
	}
	c := &conn{net: nc, in: bufio.NewReaderSize(nc, readBuffer)}
	if err := c.during(ctx, func() error { return c.greet(s.config) }); err != nil {
		c.close()
		return nil, fmt.Errorf("log in: %w", err)
	}
	return c, nil
}

// greet logs in and chooses the database.
func (c *conn) greet(config Config) error {
	replies := 0
	queue := func(args ...string) {
		c.command(args...)
		replies++
	}
	switch {
	case config.Username != "":
		queue("AUTH", config.Username, config.Password)
	case config.Password != "":
		queue("AUTH", config.Password)
	}
	if config.DB != 0 {
		queue("SELECT", strconv.Itoa(config.DB))
	}
	if err := c.flush(); err != nil {
		return err
	}
	for range replies {
		if _, err := c.line('+'); err != nil {
			return err
		}
	}
	return nil
}

// during runs do, which ends early when ctx does or the server is silent.
func (c *conn) during(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.net.SetDeadline(time.Now().Add(silence)); err != nil {
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

func (c *conn) close() { _ = c.net.Close() }

// command queues a command.
func (c *conn) command(args ...string) {
	c.out = strconv.AppendInt(append(c.out, '*'), int64(len(args)), 10)
	for _, a := range args {
		c.out = strconv.AppendInt(append(c.out, "\r\n$"...), int64(len(a)), 10)
		c.out = append(append(c.out, "\r\n"...), a...)
	}
	c.out = append(c.out, "\r\n"...)
}

// eval queues a script. It is sent as text each time: some hundred bytes for a
// whole batch are nothing, and Redis can never have forgotten it.
func (c *conn) eval(script string, keys []string, args ...string) {
	c.command(append(append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...), args...)...)
}

// flush sends what is queued.
func (c *conn) flush() error {
	_, err := c.net.Write(c.out)
	c.out = c.out[:0]
	return err
}

// line reads the head of a reply, which must be of the given kind, and returns
// what follows the kind. It is valid until the next read.
func (c *conn) line(kind byte) ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, ended(err)
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("redis sent %q, which is not its protocol", line)
	}
	if line[0] == '-' {
		return nil, replyError(line[1 : len(line)-2])
	}
	if line[0] != kind {
		return nil, fmt.Errorf("redis sent %q, expected a reply that begins with %q", line, kind)
	}
	return line[1 : len(line)-2], nil
}

// number reads the head of a reply whose text is a number: an integer, or the
// size of an array or a string.
func (c *conn) number(kind byte) (int, error) {
	text, err := c.line(kind)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("redis sent %q where a number belongs", text)
	}
	return n, nil
}

// body appends the bytes of a string whose size was read.
func (c *conn) body(dst []byte, size int) ([]byte, error) {
	for size > 0 {
		// Straight from the buffer, so that dst needs no room cleared first.
		part, err := c.in.Peek(min(size, max(1, c.in.Buffered())))
		if err != nil {
			return dst, ended(err)
		}
		dst = append(dst, part...)
		size -= len(part)
		_, _ = c.in.Discard(len(part))
	}
	if _, err := c.in.Discard(2); err != nil {
		return dst, ended(err)
	}
	return dst, nil
}

// text reads a short string; a missing one reads as "".
func (c *conn) text() (string, error) {
	size, err := c.number('$')
	if err != nil || size < 0 {
		return "", err
	}
	b, err := c.body(nil, size)
	return string(b), err
}

// ended makes the end of a connection an error that does not read as the end of
// the events.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("redis closed the connection")
	}
	return err
}
