package gopherlua

import (
	"errors"
	"strings"
)

// Limits of the matcher: no pattern needs more, and the stack of Go must not
// grow without bound.
const (
	capturesMax  = 32
	depthMax     = 200
	pollEvery    = 1 << 12 // steps
	stepsPerByte = 8       // few searches take more for each byte of the subject
)

// A position capture has this length.
const positionCapture = -2

type capture struct{ start, len int } // len -1: still open

// A matcher matches a subject against a Lua pattern. It checks the deadline, so that a
// pattern that backtracks without end is stopped.
type matcher struct {
	src, pat string
	captures [capturesMax]capture
	level    int
	depth    int
	steps    int
	poll     func()           // panics to stop the match
	failures map[int]failures // by offset in pat; nil before remember
	asked    bool             // remember was called
}

// failures is the set of the offsets in the subject at which the match failed from a repeated
// item on, a bit for each.
type failures []uint64

func (f failures) has(s int) bool { return len(f) > 0 && f[s/64]>>(s%64)&1 != 0 }

// add adds the offsets from first to last.
func (f failures) add(first, last int) {
	for s := first; len(f) > 0 && s <= last; s++ {
		f[s/64] |= 1 << (s % 64)
	}
}

// remember makes a search that takes long remember its failures. From a repeated item at an
// offset the match ends or fails in the same way whenever it comes there, unless the pattern
// refers back to a capture. So each such state is tried once, and the search takes time in
// proportion to the subject. In a longer pattern a path through it could be too deep where another
// is not.
func (m *matcher) remember() {
	m.asked = true
	if len(m.pat) > depthMax {
		return
	}
	for p := 0; p+1 < len(m.pat); p++ {
		if m.pat[p] == '%' && isDigit(m.pat[p+1]) {
			return
		}
	}
	m.failures = make(map[int]failures)
}

// failuresOf returns those of the item at p, nil before remember.
func (m *matcher) failuresOf(p int) failures {
	if m.failures == nil {
		return nil
	}
	f := m.failures[p]
	if f == nil {
		f = make(failures, len(m.src)/64+1)
		m.failures[p] = f
	}
	return f
}

// A patternError is a malformed pattern.
type patternError struct{ error }

func malformed(text string) patternError { return patternError{errors.New(text)} }

// find returns the first match at or after from, or ok false.
func (m *matcher) find(from int) (start, end int, ok bool) {
	p, anchored := 0, strings.HasPrefix(m.pat, "^")
	if anchored {
		p = 1
	}
	for s := from; s <= len(m.src); s++ {
		m.level, m.depth = 0, 0
		if e := m.match(s, p); e >= 0 {
			return s, e, true
		}
		if anchored {
			break
		}
	}
	return 0, 0, false
}

// match returns where the match of pat[p:] at s ends, or -1.
func (m *matcher) match(s, p int) int {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > depthMax {
		panic(malformed("pattern too complex"))
	}
	for {
		m.step()
		if p == len(m.pat) {
			return s
		}
		switch c := m.pat[p]; {
		case c == '(':
			return m.open(s, p+1)
		case c == ')':
			return m.close(s, p+1)
		case c == '$' && p+1 == len(m.pat):
			if s == len(m.src) {
				return s
			}
			return -1
		case c == '%' && p+1 < len(m.pat) && (m.pat[p+1] == 'b' || m.pat[p+1] == 'f' || m.pat[p+1]-'0' < 10):
			if s, p = m.special(s, p+1); s < 0 {
				return -1
			}
		default:
			next := m.itemEnd(p)
			if next == len(m.pat) || strings.IndexByte("*+-?", m.pat[next]) < 0 {
				if !m.single(s, p, next) {
					return -1
				}
				s, p = s+1, next
				continue
			}
			return m.repeat(s, p, next)
		}
	}
}

func (m *matcher) step() {
	if m.steps++; m.steps%pollEvery == 0 {
		m.poll()
		if !m.asked && m.steps >= stepsPerByte*len(m.src) {
			m.remember()
		}
	}
}

// repeat matches the item pat[p:next] as often as the sign behind it says.
func (m *matcher) repeat(s, p, next int) int {
	switch m.pat[next] {
	case '?':
		return m.optional(s, p, next)
	case '-':
		return m.shortest(s, p, next)
	case '+':
		if !m.single(s, p, next) {
			return -1
		}
		return m.longest(s+1, p, next)
	}
	return m.longest(s, p, next)
}

func (m *matcher) optional(s, p, next int) int {
	failed := m.failuresOf(p)
	if failed.has(s) {
		return -1
	}
	if m.single(s, p, next) {
		if e := m.match(s+1, next+1); e >= 0 {
			return e
		}
	}
	e := m.match(s, next+1)
	if e < 0 {
		failed.add(s, s)
	}
	return e
}

func (m *matcher) shortest(s, p, next int) int {
	failed := m.failuresOf(p)
	for at := s; ; at++ {
		m.step()
		if !failed.has(at) {
			if e := m.match(at, next+1); e >= 0 {
				return e
			}
			if m.single(at, p, next) {
				continue
			}
		}
		failed.add(s, at)
		return -1
	}
}

// longest goes no further than to an offset at which the match failed before: all offsets behind it
// were tried then.
func (m *matcher) longest(s, p, next int) int {
	failed := m.failuresOf(p)
	last := s
	for ; !failed.has(last) && m.single(last, p, next); last++ {
		m.step()
	}
	at := last
	if failed.has(last) {
		at--
	}
	for ; at >= s; at-- {
		m.step()
		if e := m.match(at, next+1); e >= 0 {
			return e
		}
	}
	failed.add(s, last)
	return -1
}

func (m *matcher) open(s, p int) int {
	if m.level == capturesMax {
		panic(malformed("too many captures"))
	}
	length := -1
	if p < len(m.pat) && m.pat[p] == ')' {
		length = positionCapture
		p++
	}
	m.captures[m.level] = capture{s, length}
	m.level++
	e := m.match(s, p)
	if e < 0 {
		m.level--
	}
	return e
}

func (m *matcher) close(s, p int) int {
	for i := m.level - 1; i >= 0; i-- {
		if m.captures[i].len != -1 {
			continue
		}
		m.captures[i].len = s - m.captures[i].start
		e := m.match(s, p)
		if e < 0 {
			m.captures[i].len = -1
		}
		return e
	}
	panic(malformed("invalid pattern capture"))
}

// special matches %b, %f or %1 at p, just past the percent sign.
func (m *matcher) special(s, p int) (end, next int) {
	switch m.pat[p] {
	case 'b':
		if p+2 >= len(m.pat) {
			panic(malformed("malformed pattern (missing arguments to '%b')"))
		}
		return m.balance(s, m.pat[p+1], m.pat[p+2]), p + 3
	case 'f':
		if p+1 >= len(m.pat) || m.pat[p+1] != '[' {
			panic(malformed("malformed pattern (missing '[' after '%f')"))
		}
		next = m.itemEnd(p + 1)
		if m.set(m.byteAt(s-1), p+1, next) || !m.set(m.byteAt(s), p+1, next) {
			return -1, next
		}
		return s, next
	}
	i := int(m.pat[p]-'0') - 1
	if i < 0 || i >= m.level || m.captures[i].len == -1 {
		panic(malformed("invalid capture index"))
	}
	text := m.text(i)
	if m.captures[i].len == positionCapture || !strings.HasPrefix(m.src[s:], text) {
		return -1, p + 1
	}
	return s + len(text), p + 1
}

// byteAt returns a byte of the subject, or 0 beyond its borders.
func (m *matcher) byteAt(s int) byte {
	if s < 0 || s >= len(m.src) {
		return 0
	}
	return m.src[s]
}

func (m *matcher) balance(s int, open, closing byte) int {
	if s >= len(m.src) || m.src[s] != open {
		return -1
	}
	depth := 1
	for s++; s < len(m.src); s++ {
		m.step()
		switch m.src[s] {
		case closing:
			if depth--; depth == 0 {
				return s + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

// text returns what capture i holds.
func (m *matcher) text(i int) string {
	c := m.captures[i]
	if c.len < 0 {
		return ""
	}
	return m.src[c.start : c.start+c.len]
}

// itemEnd returns the offset just past the single-character item at p.
func (m *matcher) itemEnd(p int) int {
	switch m.pat[p] {
	case '%':
		if p+1 == len(m.pat) {
			panic(malformed("malformed pattern (ends with '%')"))
		}
		return p + 2
	case '[':
		return m.setEnd(p + 1)
	}
	return p + 1
}

func (m *matcher) setEnd(p int) int {
	if p < len(m.pat) && m.pat[p] == '^' {
		p++
	}
	for first := true; ; first = false {
		switch {
		case p >= len(m.pat):
			panic(malformed("malformed pattern (missing ']')"))
		case m.pat[p] == ']' && !first:
			return p + 1
		case m.pat[p] == '%':
			p++
		}
		p++
	}
}

// single tells whether the item pat[p:next] matches the byte at s.
func (m *matcher) single(s, p, next int) bool {
	if s >= len(m.src) {
		return false
	}
	switch c := m.src[s]; m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.set(c, p, next)
	default:
		return m.pat[p] == c
	}
}

// set tells whether c is in the set pat[p:next].
func (m *matcher) set(c byte, p, next int) bool {
	p++
	found := true
	if m.pat[p] == '^' {
		found = false
		p++
	}
	for last := next - 1; p < last; p++ {
		switch {
		case m.pat[p] == '%' && p+1 < last:
			p++
			if inClass(c, m.pat[p]) {
				return found
			}
		case p+2 < last && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return found
			}
			p += 2
		case m.pat[p] == c:
			return found
		}
	}
	return !found
}

// inClass tells whether c is in the class of a letter like %a; any other
// character stands for itself.
func inClass(c, class byte) bool {
	var in bool
	switch class | 0x20 {
	case 'a':
		in = isAlpha(c)
	case 'c':
		in = c < 0x20 || c == 0x7f
	case 'd':
		in = isDigit(c)
	case 'g':
		in = c > 0x20 && c < 0x7f
	case 'l':
		in = c-'a' < 26
	case 'p':
		in = c > 0x20 && c < 0x7f && !isAlpha(c) && !isDigit(c)
	case 's':
		in = c == ' ' || c-'\t' < 5
	case 'u':
		in = c-'A' < 26
	case 'w':
		in = isAlpha(c) || isDigit(c)
	case 'x':
		in = isDigit(c) || c|0x20-'a' < 6
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	if !isAlpha(class) {
		return class == c
	}
	return in != (class&0x20 == 0)
}

func isDigit(c byte) bool { return c-'0' < 10 }
func isAlpha(c byte) bool { return c|0x20-'a' < 26 }
