package redis

import (
	_ "embed" // the script
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/perigeedb/perigee/internal/resp"
)

//go:embed list_advance.lua
var listAdvance string

// A list is a Redis list: a position is an index from the head on.
type list struct {
	key, state string
	bytes      int // of the next item
}

func (*list) begin(*resp.Conn) error { return nil }

func (l *list) ask(c *resp.Conn, head, from uint64, n int, anchored bool) {
	first, last := int(from-head), int(from-head)+n-1
	if anchored {
		first--
	}
	if last < first {
		first, last = 1, 0 // no item
	}
	c.Queue("MULTI")
	c.Queue("HMGET", l.state, "generation", "head", "pipeline")
	c.Queue("LLEN", l.key)
	c.Queue("LRANGE", l.key, strconv.Itoa(first), strconv.Itoa(last))
	c.Queue("EXEC")
}

func (l *list) answer(c *resp.Conn) (p peek, err error) {
	if err = readExec(c, 3); err != nil {
		return p, err
	}
	if p.state, err = readState(c); err != nil {
		return p, err
	}
	if p.length, err = c.ReadLength(':'); err != nil {
		return p, err
	}
	p.items, err = c.ReadLength('*')
	return p, err
}

func (l *list) size(c *resp.Conn) (size int, err error) {
	l.bytes, err = c.ReadLength('$')
	return l.bytes, err
}

func (l *list) take(c *resp.Conn, dst []byte, _ uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := c.AppendBody(dst, l.bytes)
	return dst, crc32.Checksum(dst[start:], castagnoli), err
}

func (l *list) askAdvance(c *resp.Conn, t trim) {
	c.QueueEval(listAdvance, []string{l.key, l.state}, t.was.generation,
		strconv.FormatUint(t.was.head, 10), strconv.FormatUint(t.to-t.was.head, 10), t.generation)
}

func (*list) readAdvance(c *resp.Conn) error { return readDone(c) }

func (l *list) anew(generation string, _ uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s head 0", l.state, generation)
}
