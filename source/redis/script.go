package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/source"
)

// A lua is a user's script: loaded once on each connection, called by its SHA.
type lua struct{ name, text, sha string }

// readLua reads a script. before goes in front of its first statement.
func readLua(folder, name, before string) (*lua, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(folder, name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the Redis script: %w", err)
	}
	l := &lua{name: name, text: prepend(before, string(text))}
	sum := sha1.Sum([]byte(l.text))
	l.sha = hex.EncodeToString(sum[:])
	return l, nil
}

// prepend keeps a first line with flags the first, and the numbers of the lines.
func prepend(before, text string) string {
	if flags, rest, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(flags, "#!") {
		return flags + "\n" + before + rest
	}
	return before + text
}

// load loads scripts that the server may not know.
func load(c *resp.Conn, scripts ...*lua) error {
	for _, l := range scripts {
		c.Queue("SCRIPT", "LOAD", l.text)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, l := range scripts {
		if _, err := c.ReadString(); err != nil {
			var refused resp.ReplyError
			if errors.As(err, &refused) {
				return &scriptError{l.name, refused}
			}
			return err
		}
	}
	return nil
}

// A scriptError is what a user's script did wrong.
type scriptError struct {
	name string
	err  error
}

func (e *scriptError) Error() string { return "script " + e.name + ": " + e.err.Error() }
func (e *scriptError) Unwrap() error { return e.err }

// forgotten tells whether Redis has lost the scripts that were loaded.
func forgotten(err error) bool {
	var refused resp.ReplyError
	return errors.As(err, &refused) && refused.Code() == "NOSCRIPT"
}

// trimGuard stands in front of a user's trim script. It compares and sets: a
// worker that has lost the key to another does nothing.
const trimGuard = `if redis.call('HGET', KEYS[2], 'generation') ~= ARGV[3] then return -1 end ` +
	`if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], 'generation', ARGV[4], 'base', ARGV[1]) end `

// A pair is a key that a user's scripts look after: one returns events by their
// absolute position, the other gives up those before one. The first position that
// is left is the script's; the state has the generation, and the position at
// which that began.
type pair struct {
	key, state string
	peek, trim *lua
	bytes      int    // of the next event
	to         uint64 // of the trim that was asked for

}

func (p *pair) begin(c *resp.Conn) error { return load(c, p.peek, p.trim) }

func (p *pair) ask(c *resp.Conn, _, from uint64, n int, anchored bool) {
	if anchored {
		from, n = from-1, n+1
	}
	c.Queue("MULTI")
	c.Queue("HMGET", p.state, "generation", "base", "pipeline")
	c.Queue("EVALSHA", p.peek.sha, "2", p.key, p.state, strconv.FormatUint(from, 10), strconv.Itoa(n))
	c.Queue("EXEC")
}

func (p *pair) answer(c *resp.Conn) (k peek, err error) {
	if err = readExec(c, 2); err != nil {
		return k, err
	}
	if k.state, err = readState(c); err != nil {
		return k, err
	}
	k.base = k.state.head
	n, err := c.ReadLength('*')
	if err == nil && n < 2 {
		err = breach("it must return an array: the first position that is left, how many events there are, then events")
	}
	var numbers [2]uint64
	for i := 0; i < 2 && err == nil; i++ {
		numbers[i], err = p.number(c)
	}
	if err != nil {
		return k, wrong(p.peek, err)
	}
	k.state.head, k.length, k.items = numbers[0], int(numbers[1]), n-2
	return k, nil
}

// number reads a number that a script returns as it likes.
func (p *pair) number(c *resp.Conn) (uint64, error) {
	v, err := c.ReadReply()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(fmt.Sprint(v), 10, 64)
	if err != nil {
		return 0, breach(fmt.Sprintf("it returned %v where a number of 0 or more belongs", v))
	}
	return n, nil
}

// A breach is what a script returned against the contract.
type breach string

func (e breach) Error() string { return string(e) }

// wrong names the script whose fault an error is. That of a connection is none's.
func wrong(l *lua, err error) error {
	faulty := errors.As(err, new(resp.ReplyError)) || errors.As(err, new(resp.UnexpectedReply)) || errors.As(err, new(breach))
	if !faulty || forgotten(err) {
		return err
	}
	return &scriptError{l.name, err}
}

func (p *pair) size(c *resp.Conn) (size int, err error) {
	p.bytes, err = c.ReadLength('$')
	if err == nil && p.bytes < 0 {
		err = breach("it returned nil for an event")
	}
	return p.bytes, wrong(p.peek, err)
}

func (p *pair) take(c *resp.Conn, dst []byte, _ uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := c.AppendBody(dst, p.bytes)
	return dst, crc32.Checksum(dst[start:], castagnoli), err
}

func (p *pair) askAdvance(c *resp.Conn, t trim) {
	p.to = t.to
	c.Queue("EVALSHA", p.trim.sha, "2", p.key, p.state, strconv.FormatUint(t.to, 10),
		strconv.FormatUint(t.was.head, 10), t.was.generation, t.generation)
}

func (p *pair) readAdvance(c *resp.Conn) error {
	v, err := c.ReadReply()
	if err != nil {
		return wrong(p.trim, err)
	}
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	switch {
	case err != nil:
		return wrong(p.trim, breach(fmt.Sprintf("it returned %v; it must return the first position that is left", v)))
	case uint64(n) != p.to:
		return source.ErrMoved
	}
	return nil
}

func (p *pair) anew(generation string, head uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s base %d", p.state, generation, head)
}
