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

// A userScript is a Redis script of a user. It is loaded on each new connection and
// called by its SHA.
type userScript struct{ name, text, sha string }

// readUserScript reads a script and puts code before its first statement.
func readUserScript(folder, name, before string) (*userScript, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(folder, name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the Redis script: %w", err)
	}
	l := &userScript{name: name, text: insertCode(before, string(text))}
	sum := sha1.Sum([]byte(l.text))
	l.sha = hex.EncodeToString(sum[:])
	return l, nil
}

// insertCode puts code in front of text. A first line with flags stays first, and line
// numbers stay the same.
func insertCode(before, text string) string {
	if flags, rest, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(flags, "#!") {
		return flags + "\n" + before + rest
	}
	return before + text
}

// loadScripts loads scripts into the server.
func loadScripts(c *resp.Conn, scripts ...*userScript) error {
	for _, l := range scripts {
		c.Queue("SCRIPT", "LOAD", l.text)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, l := range scripts {
		if _, err := c.ReadString(); err != nil {
			var reply resp.ReplyError
			if errors.As(err, &reply) {
				return &scriptError{l.name, reply}
			}
			return err
		}
	}
	return nil
}

// A scriptError is an error of a user's script.
type scriptError struct {
	name string
	err  error
}

func (e *scriptError) Error() string { return "script " + e.name + ": " + e.err.Error() }
func (e *scriptError) Unwrap() error { return e.err }

// isNoScript reports whether the server no longer has a loaded script.
func isNoScript(err error) bool {
	var reply resp.ReplyError
	return errors.As(err, &reply) && reply.Code() == "NOSCRIPT"
}

// trimGuard is inserted into a user's trim script to make it a compare-and-set: a worker
// that lost the key to another one trims nothing.
const trimGuard = `if redis.call('HGET', KEYS[2], 'generation') ~= ARGV[3] then return -1 end ` +
	`if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], 'generation', ARGV[4], 'base', ARGV[1]) end `

// A scriptedQueue is a key that a user's scripts read and trim: one returns events by
// their absolute position, the other removes those before a position. The scripts keep
// the first position that is left; the state has the generation and the position at
// which it started.
type scriptedQueue struct {
	key, state string
	peek, trim *userScript
	bytes      int    // of the next event
	to         uint64 // of the queued trim
}

func (p *scriptedQueue) prepare(c *resp.Conn) error { return loadScripts(c, p.peek, p.trim) }

func (p *scriptedQueue) queueRead(c *resp.Conn, _, from uint64, n int, anchored bool) {
	if anchored {
		from, n = from-1, n+1
	}
	c.Queue("MULTI")
	c.Queue("HMGET", p.state, "generation", "base", "pipeline")
	c.Queue("EVALSHA", p.peek.sha, "2", p.key, p.state, strconv.FormatUint(from, 10), strconv.Itoa(n))
	c.Queue("EXEC")
}

func (p *scriptedQueue) readSnapshot(c *resp.Conn) (k snapshot, err error) {
	if err = readExecHeader(c, 2); err != nil {
		return k, err
	}
	if k.state, err = readState(c); err != nil {
		return k, err
	}
	k.base = k.state.head
	n, err := c.ReadLength('*')
	if err == nil && n < 2 {
		err = contractError("it must return an array: the first position that is left, the number of events, then events")
	}
	var numbers [2]uint64
	for i := 0; i < 2 && err == nil; i++ {
		numbers[i], err = p.readNumber(c)
	}
	if err != nil {
		return k, blameScript(p.peek, err)
	}
	k.state.head, k.length, k.items = numbers[0], int(numbers[1]), n-2
	return k, nil
}

// readNumber reads a number that a script may return as an integer or as a string.
func (p *scriptedQueue) readNumber(c *resp.Conn) (uint64, error) {
	v, err := c.ReadReply()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(fmt.Sprint(v), 10, 64)
	if err != nil {
		return 0, contractError(fmt.Sprintf("it returned %v, expected a number of at least 0", v))
	}
	return n, nil
}

// A contractError says how a reply of a script breaks the contract.
type contractError string

func (e contractError) Error() string { return string(e) }

// blameScript wraps an error that the script caused in a scriptError. Errors of the
// connection stay as they are.
func blameScript(l *userScript, err error) error {
	caused := errors.As(err, new(resp.ReplyError)) || errors.As(err, new(resp.UnexpectedReply)) || errors.As(err, new(contractError))
	if !caused || isNoScript(err) {
		return err
	}
	return &scriptError{l.name, err}
}

func (p *scriptedQueue) nextSize(c *resp.Conn) (size int, err error) {
	p.bytes, err = c.ReadLength('$')
	if err == nil && p.bytes < 0 {
		err = contractError("it returned nil for an event")
	}
	return p.bytes, blameScript(p.peek, err)
}

func (p *scriptedQueue) appendEvent(c *resp.Conn, dst []byte, _ uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := c.AppendBody(dst, p.bytes)
	return dst, crc32.Checksum(dst[start:], castagnoli), err
}

func (p *scriptedQueue) queueTrim(c *resp.Conn, t trim) {
	p.to = t.to
	c.Queue("EVALSHA", p.trim.sha, "2", p.key, p.state, strconv.FormatUint(t.to, 10),
		strconv.FormatUint(t.expected.head, 10), t.expected.generation, t.generation)
}

func (p *scriptedQueue) readTrimReply(c *resp.Conn) error {
	v, err := c.ReadReply()
	if err != nil {
		return blameScript(p.trim, err)
	}
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	switch {
	case err != nil:
		return blameScript(p.trim, contractError(fmt.Sprintf("it returned %v, expected the first position that is left", v)))
	case uint64(n) != p.to:
		return source.ErrMoved
	}
	return nil
}

func (p *scriptedQueue) resetCommand(generation string, head uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s base %d", p.state, generation, head)
}
