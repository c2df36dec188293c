package redis

import (
	_ "embed" // the script
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/perigeedb/perigee/internal/resp"
)

//go:embed list_trim.lua
var listTrimScript string

// A listQueue is a Redis list. A position is the head plus an index.
type listQueue struct {
	key, state string
	bytes      int // of the next item
}

func (*listQueue) prepare(*resp.Conn) error { return nil }

func (l *listQueue) queueRead(c *resp.Conn, head, from uint64, n int, anchored bool) {
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

func (l *listQueue) readSnapshot(c *resp.Conn) (p snapshot, err error) {
	if err = readExecHeader(c, 3); err != nil {
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

func (l *listQueue) nextSize(c *resp.Conn) (size int, err error) {
	l.bytes, err = c.ReadLength('$')
	return l.bytes, err
}

func (l *listQueue) appendEvent(c *resp.Conn, dst []byte, _ uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := c.AppendBody(dst, l.bytes)
	return dst, crc32.Checksum(dst[start:], castagnoli), err
}

func (l *listQueue) queueTrim(c *resp.Conn, t trim) {
	c.QueueEval(listTrimScript, []string{l.key, l.state}, t.expected.generation,
		strconv.FormatUint(t.expected.head, 10), strconv.FormatUint(t.to-t.expected.head, 10), t.generation)
}

func (*listQueue) readTrimReply(c *resp.Conn) error { return readTrimDone(c) }

func (l *listQueue) resetCommand(generation string, _ uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s head 0", l.state, generation)
}
