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

//go:embed stream_look.lua
var streamLook string

//go:embed stream_create.lua
var streamCreate string

//go:embed stream_advance.lua
var streamAdvance string

// An id is the ID of an entry.
type id struct{ ms, seq uint64 }

func (i id) String() string {
	return strconv.FormatUint(i.ms, 10) + "-" + strconv.FormatUint(i.seq, 10)
}

// behind is the least ID above i.
func (i id) behind() id {
	if i.seq == math.MaxUint64 {
		return id{i.ms + 1, 0}
	}
	return id{i.ms, i.seq + 1}
}

func parseID(text []byte) (i id, err error) {
	var rest []byte
	valid := false
	if i.ms, rest = digits(text); len(rest) > 1 && len(rest) < len(text) && rest[0] == '-' {
		i.seq, rest = digits(rest[1:])
		valid = len(rest) == 0
	}
	if !valid {
		return id{}, fmt.Errorf("%q is not the ID of an entry", text)
	}
	return i, nil
}

// digits reads the number in front of what else there is.
func digits(text []byte) (n uint64, rest []byte) {
	for i, c := range text {
		if c < '0' || c > '9' {
			return n, text[i:]
		}
		n = 10*n + uint64(c-'0')
	}
	return n, nil
}

// A stream is a Redis stream. IDs are not dense, so a position counts what was
// ever added before the entry, and the state has the ID of the entry before
// the head. An entry is found by the ID of the one before it; a fingerprint takes
// in the ID, so equal fingerprints are the same entry.
type stream struct {
	key, state string
	keep       bool   // entries stay in the stream
	field      string // that holds the document; empty for the only one, or all

	entry entry
	ids   []mark // ascending by end: where the next read or trim may begin
}

// A mark says which entry is the last before a position.
type mark struct {
	end uint64
	id  id
}

func (*stream) begin(*resp.Conn) error { return nil }

func (s *stream) start(now peek) {
	if now.gone < 0 {
		now.after, now.gone = id{}, 0 // all there is comes from after the beginning
	}
	s.ids = append(s.ids[:0], mark{now.state.head + uint64(now.gone), now.after})
}

// last returns the mark nearest to position p that is not above it.
func (s *stream) last(p uint64) mark {
	return s.ids[max(0, sort.Search(len(s.ids), func(i int) bool { return s.ids[i].end > p })-1)]
}

func (s *stream) passed(first, end uint64) {
	to := sort.Search(len(s.ids), func(i int) bool { return s.ids[i].end > end })
	s.ids = s.ids[:to]
	if from := sort.Search(to, func(i int) bool { return s.ids[i].end > first }); from < to-1 {
		s.ids = slices.Delete(s.ids, from, to-1)
	}
}

func (s *stream) reachable(settled uint64) uint64 {
	if m := s.last(settled); m.end <= settled {
		return m.end
	}
	return 0
}

func (s *stream) ask(c *resp.Conn, _, from uint64, n int, anchored bool) {
	begin, count := "("+s.from(from), n
	if anchored {
		begin, count = begin[1:], n+1
	}
	c.Queue("MULTI")
	c.QueueEval(streamLook, []string{s.key, s.state})
	if count > 0 {
		c.Queue("XRANGE", s.key, begin, "+", "COUNT", strconv.Itoa(count))
	} else {
		c.Queue("XRANGE", s.key, "0-2", "0-1") // no entry
	}
	c.Queue("EXEC")
}

func (s *stream) from(p uint64) string {
	if len(s.ids) == 0 {
		return id{}.String()
	}
	return s.last(p).id.String()
}

func (s *stream) answer(c *resp.Conn) (p peek, err error) {
	if err = readExec(c, 2); err != nil {
		return p, err
	}
	if p.state, err = readState(c); err != nil {
		return p, err
	}
	var after, gone, length, holes, base string
	for _, field := range []*string{&after, &gone, &length, &holes, &base} {
		if *field, err = c.ReadString(); err != nil {
			return p, err
		}
	}
	if p.after, err = parseID([]byte(after)); err != nil {
		return p, err
	}
	p.gone, _ = strconv.Atoi(gone)
	p.length, _ = strconv.Atoi(length)
	p.base, _ = strconv.ParseUint(base, 10, 64)
	if p.holes, err = parseHoles(holes); err != nil {
		return p, err
	}
	p.items, err = c.ReadLength('*')
	return p, err
}

func (s *stream) size(c *resp.Conn) (int, error) { return s.entry.read(c, s.field) }

func (s *stream) take(c *resp.Conn, dst []byte, at uint64) ([]byte, uint32, error) {
	start := len(dst)
	dst, err := s.entry.take(c, dst)
	if err != nil {
		return dst, 0, err
	}
	if s.ids[len(s.ids)-1].end <= at {
		var i id
		i, err = parseID(s.entry.id)
		s.ids = append(s.ids, mark{at + 1, i})
	}
	return dst, crc32.Update(crc32.Checksum(s.entry.id, castagnoli), castagnoli, dst[start:]), err
}

func (s *stream) askAdvance(c *resp.Conn, t trim) {
	after, behind := s.last(t.to).id, ""
	if !s.keep {
		behind = after.behind().String()
	}
	c.QueueEval(streamAdvance, []string{s.key, s.state}, t.was.generation, strconv.FormatUint(t.was.head, 10),
		strconv.FormatUint(t.to-t.was.head, 10), t.generation, after.String(), behind)
	s.ids = slices.Delete(s.ids, 0, sort.Search(len(s.ids)-1, func(i int) bool { return s.ids[i].end >= t.to }))
}

func (*stream) readAdvance(c *resp.Conn) error { return readDone(c) }

func (s *stream) anew(generation string, head uint64) string {
	return fmt.Sprintf("redis-cli HSET %q generation %s base %d holes 0-0", s.state, generation, head)
}
