package redis

import (
	_ "embed" // the scripts
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/perigeedb/perigee/internal/resp"
)

//go:embed stream_state.lua
var streamStateScript string

//go:embed stream_create_state.lua
var streamCreateScript string

//go:embed stream_trim.lua
var streamTrimScript string

// An entryID is the ID of a stream's entry.
type entryID struct{ ms, seq uint64 }

func (i entryID) String() string {
	return strconv.FormatUint(i.ms, 10) + "-" + strconv.FormatUint(i.seq, 10)
}

// next returns the lowest ID above i.
func (i entryID) next() entryID {
	if i.seq == math.MaxUint64 {
		return entryID{i.ms + 1, 0}
	}
	return entryID{i.ms, i.seq + 1}
}

func parseID(text []byte) (i entryID, err error) {
	var rest []byte
	valid := false
	if i.ms, rest = digits(text); len(rest) > 1 && len(rest) < len(text) && rest[0] == '-' {
		i.seq, rest = digits(rest[1:])
		valid = len(rest) == 0
	}
	if !valid {
		return entryID{}, fmt.Errorf("invalid entry ID %q", text)
	}
	return i, nil
}

// digits parses the number at the start of text.
func digits(text []byte) (n uint64, rest []byte) {
	for i, c := range text {
		if c < '0' || c > '9' {
			return n, text[i:]
		}
		n = 10*n + uint64(c-'0')
	}
	return n, nil
}

// A streamQueue is a Redis stream. IDs are not consecutive, so a position is the number of
// entries that were added before, and the state has the ID of the last entry before the
// head. An entry is found by the ID of the one before it. A fingerprint includes the ID,
// so equal fingerprints mean the same entry.
type streamQueue struct {
	key, state string
	keep       bool   // do not trim the stream
	field      string // that contains the document; "" for the only one, or all

	entry streamEntry
	ids   []entryMark // ascending by end: where the next read or trim may start
}

// An entryMark says which entry is the last before a position.
type entryMark struct {
	end uint64
	id  entryID
}

func (*streamQueue) prepare(*resp.Conn) error { return nil }

func (s *streamQueue) startWalk(now snapshot) {
	if now.removed < 0 {
		now.after, now.removed = entryID{}, 0 // it is another stream: read all of it
	}
	s.ids = append(s.ids[:0], entryMark{now.state.head + uint64(now.removed), now.after})
}

// markBefore returns the last mark at or before position p, or the first mark.
func (s *streamQueue) markBefore(p uint64) entryMark {
	return s.ids[max(0, sort.Search(len(s.ids), func(i int) bool { return s.ids[i].end > p })-1)]
}

func (s *streamQueue) dropMarks(first, end uint64) {
	to := sort.Search(len(s.ids), func(i int) bool { return s.ids[i].end > end })
	s.ids = s.ids[:to]
	if from := sort.Search(to, func(i int) bool { return s.ids[i].end > first }); from < to-1 {
		s.ids = slices.Delete(s.ids, from, to-1)
	}
}

func (s *streamQueue) trimmable(acked uint64) uint64 {
	if m := s.markBefore(acked); m.end <= acked {
		return m.end
	}
	return 0
}

func (s *streamQueue) queueRead(c *resp.Conn, _, from uint64, n int, anchored bool) {
	begin, count := "("+s.startID(from), n
	if anchored {
		begin, count = begin[1:], n+1
	}
	c.Queue("MULTI")
	c.QueueEval(streamStateScript, []string{s.key, s.state})
	if count > 0 {
		c.Queue("XRANGE", s.key, begin, "+", "COUNT", strconv.Itoa(count))
	} else {
		c.Queue("XRANGE", s.key, "0-2", "0-1") // no entry
	}
	c.Queue("EXEC")
}

func (s *streamQueue) startID(p uint64) string {
	if len(s.ids) == 0 {
		return entryID{}.String()
	}
	return s.markBefore(p).id.String()
}

func (s *streamQueue) readSnapshot(c *resp.Conn) (p snapshot, err error) {
	if err = readExecHeader(c, 2); err != nil {
		return p, err
	}
	if p.state, err = readState(c); err != nil {
		return p, err
	}
	if p.removed, err = c.ReadLength(':'); err != nil {
		return p, err
	}
	if p.length, err = c.ReadLength(':'); err != nil {
		return p, err
	}
	var after, holes, base string
	for _, field := range []*string{&after, &holes, &base} {
		if *field, err = c.ReadString(); err != nil {
			return p, err
		}
	}
	if p.after, err = parseID([]byte(after)); err != nil {
		return p, invalidState("ID", after)
	}
	if p.holes, err = parseHoles(holes); err != nil {
		return p, err
	}
	if p.base, err = strconv.ParseUint(base, 10, 64); err != nil {
		return p, invalidState("base", base)
	}
	p.items, err = c.ReadLength('*')
	return p, err
}

func (s *streamQueue) nextSize(c *resp.Conn) (int, error) { return s.entry.readSize(c, s.field) }

func (s *streamQueue) appendEvent(c *resp.Conn, dst []byte, at uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := s.entry.appendDocument(c, dst)
	if err != nil {
		return dst, 0, err
	}
	if s.ids[len(s.ids)-1].end <= at {
		var i entryID
		i, err = parseID(s.entry.id)
		s.ids = append(s.ids, entryMark{at + 1, i})
	}
	return dst, crc32.Update(crc32.Checksum(s.entry.id, castagnoli), castagnoli, dst[start:]), err
}

func (s *streamQueue) queueTrim(c *resp.Conn, t trim) {
	after, behind := s.markBefore(t.to).id, ""
	if !s.keep {
		behind = after.next().String()
	}
	c.QueueEval(streamTrimScript, []string{s.key, s.state}, t.expected.generation, strconv.FormatUint(t.expected.head, 10),
		strconv.FormatUint(t.to-t.expected.head, 10), t.generation, after.String(), behind)
	s.ids = slices.Delete(s.ids, 0, sort.Search(len(s.ids)-1, func(i int) bool { return s.ids[i].end >= t.to }))
}

func (*streamQueue) readTrimReply(c *resp.Conn) error { return readTrimDone(c) }

func (s *streamQueue) resetCommand(generation string, head uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s base %d holes 0-0", s.state, generation, head)
}
