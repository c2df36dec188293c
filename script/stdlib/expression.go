package stdlib

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Bounds of a pattern. instructionsMax and capturesMax are of what it is compiled to.
const (
	patternMax      = 4 << 10 // bytes
	instructionsMax = 10_000
	capturesMax     = 200_000 // captures of one group, in all threads of a match
	foldedMax       = 32      // classes where case is ignored: the parser takes 3 ms for a large one
)

// An expression is a compiled RE2 expression. It matches as package regexp does. Its own
// matcher replaces that package's, which nothing can interrupt: a match takes time up to the
// product of both lengths.
type expression struct {
	prog     *syntax.Prog
	size     int // of the program, for the cache
	groups   int
	names    []string    // of groups, "" for one without
	anchored bool        // it matches only at the beginning of the text
	prefix   string      // that every match begins with
	first    *[256]bool  // the bytes that a match may begin with; nil if it may be empty
	ascii    [][2]uint64 // by instruction, the ASCII characters that it reads
	context  bool        // it has ^, $, \b or the like
	matchers sync.Pool
}

func compileExpression(pattern string) (*expression, error) {
	if len(pattern) > patternMax {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(pattern), patternMax)
	}
	if classes := strings.Count(pattern, "[") + strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`); classes > foldedMax && ignoresCase(pattern) {
		return nil, fmt.Errorf("the pattern has %d classes; with (?i) at most %d are allowed", classes, foldedMax)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	size, groups := programSize(tree), tree.MaxCap()
	if size > instructionsMax {
		return nil, fmt.Errorf("the pattern compiles to more than %d instructions; use smaller counts in {}", instructionsMax)
	}
	if size*(groups+1) > capturesMax {
		return nil, fmt.Errorf("the pattern has %d groups, too many for its size; write (?:…) where no group is needed", groups)
	}
	names := tree.CapNames()
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	e := &expression{prog: prog, size: size, groups: groups, names: names}
	e.anchored = prog.StartCond()&syntax.EmptyBeginText != 0
	if !e.anchored {
		e.prefix, _ = prog.Prefix()
	}
	e.ascii = make([][2]uint64, len(prog.Inst))
	for i := range prog.Inst {
		for c := rune(0); c < utf8.RuneSelf && prog.Inst[i].Op >= syntax.InstRune; c++ {
			if accepts(&prog.Inst[i], c) {
				e.ascii[i][c/64] |= 1 << (c % 64)
			}
		}
		e.context = e.context || prog.Inst[i].Op == syntax.InstEmptyWidth
	}
	if !e.anchored && e.prefix == "" {
		e.findFirstBytes()
	}
	e.matchers.New = func() any { return newMatcher(e) }
	return e, nil
}

// ignoresCase tells whether a pattern may set the flag i.
func ignoresCase(pattern string) bool {
	for {
		_, rest, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		flags := strings.IndexAny(rest, ":)")
		if flags >= 0 && strings.Contains(rest[:flags], "i") {
			return true
		}
		pattern = rest
	}
}

// findFirstBytes sets which bytes a match may begin with, unless it may be empty.
func (e *expression) findFirstBytes() {
	var first [256]bool
	seen := make([]bool, len(e.prog.Inst))
	for open := []uint32{uint32(e.prog.Start)}; len(open) > 0; {
		pc := open[len(open)-1]
		open = open[:len(open)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch inst := &e.prog.Inst[pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			open = append(open, inst.Out, inst.Arg)
		case syntax.InstNop, syntax.InstCapture, syntax.InstEmptyWidth:
			open = append(open, inst.Out)
		case syntax.InstMatch:
			return
		case syntax.InstFail:
		default:
			for c := range first {
				first[c] = first[c] || c >= utf8.RuneSelf || accepts(inst, rune(c))
			}
		}
	}
	e.first = &first
}

// accepts tells whether an instruction reads a rune, -1 at the end of the text.
func accepts(inst *syntax.Inst, r rune) bool {
	switch inst.Op {
	case syntax.InstRune:
		return r >= 0 && inst.MatchRune(r)
	case syntax.InstRune1:
		return r == inst.Rune[0]
	case syntax.InstRuneAny:
		return r >= 0
	default: // InstRuneAnyNotNL
		return r >= 0 && r != '\n'
	}
}

// programSize estimates the number of instructions, and the memory of classes in
// units of an instruction, from the tree, which does not repeat what a count repeats.
func programSize(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size = 1 + len(re.Rune)/16
	case syntax.OpCapture, syntax.OpAlternate:
		size += 2 + len(re.Sub)
	case syntax.OpRepeat:
		size = (size + 1) * max(re.Min, re.Max, 1)
	default:
		size++
	}
	return min(size, 1<<30)
}

// A queue holds the threads of a match at one place of the text, by priority. sparse says
// where in dense an instruction is, if it is there.
type queue struct {
	sparse, dense []uint32
	captures      []int // 2 for each group of each thread
}

// A matcher runs an expression over a text. It counts its steps, and every few thousand of
// them asks whether to go on.
type matcher struct {
	e         *expression
	now, next queue
	capture   []int // of the thread that runs
	found     []int // of the match, two for each group
	width     int   // of these: 0 where only whether there is a match matters
	steps     int
	proceed   func() error
}

// stepsPerCheck is how many steps of a matcher pass between two questions to proceed. They
// take about 0.1 ms.
const stepsPerCheck = 1 << 13

func newMatcher(e *expression) *matcher {
	n, width := len(e.prog.Inst), 2*(e.groups+1)
	newQueue := func() queue {
		return queue{make([]uint32, n), make([]uint32, 0, n), make([]int, n*width)}
	}
	return &matcher{e: e, now: newQueue(), next: newQueue(), capture: make([]int, width), found: make([]int, width)}
}

// find returns the leftmost match at or after from: where it and each group begin and end,
// -1 for a group without part in it. The result is nil without a match, and overwritten by the
// next call. With groups false it is empty, and only tells that there is a match. An error is
// that of proceed.
func (m *matcher) find(s string, from int, groups bool) ([]int, error) {
	m.width = 0
	if groups {
		m.width = len(m.found)
	}
	now, next := &m.now, &m.next
	now.dense, next.dense = now.dense[:0], next.dense[:0]
	matched, at := false, m.contextAt(s, from)
	for pos := from; ; {
		if len(now.dense) == 0 {
			if matched || m.e.anchored && pos > 0 {
				break
			}
			if m.e.prefix != "" {
				skip := strings.Index(s[pos:], m.e.prefix)
				if skip < 0 {
					break
				}
				if skip > 0 {
					pos += skip
					at = m.contextAt(s, pos)
				}
			} else if m.e.first != nil {
				skip := pos
				for skip < len(s) && !m.e.first[s[skip]] {
					skip++
				}
				if skip == len(s) {
					break
				}
				if skip > pos {
					pos = skip
					at = m.contextAt(s, pos)
				}
			}
		}
		r, width := rune(-1), 0
		if pos < len(s) {
			if r, width = rune(s[pos]), 1; r >= utf8.RuneSelf {
				r, width = utf8.DecodeRuneInString(s[pos:])
			}
		}
		if !matched && (!m.e.anchored || pos == 0) {
			for i := range m.capture[:m.width] {
				m.capture[i] = -1
			}
			if groups {
				m.capture[0] = pos
			}
			m.add(now, uint32(m.e.prog.Start), pos, at)
		}
		after := m.contextAt(s, pos+width)
		if m.step(now, next, r, pos, pos+width, after) {
			matched = true
			if !groups {
				break
			}
		}
		if err := m.check(); err != nil {
			return nil, err
		}
		if width == 0 {
			break
		}
		now, next = next, now
		pos, at = pos+width, after
	}
	if !matched {
		return nil, nil
	}
	return m.found[:m.width], nil
}

// check asks whether to go on, once every stepsPerCheck steps.
func (m *matcher) check() error {
	if m.steps < stepsPerCheck {
		return nil
	}
	m.steps = 0
	return m.proceed()
}

// contextAt returns what ^, $, \b and the like find at a place of the text.
func (m *matcher) contextAt(s string, pos int) syntax.EmptyOp {
	if !m.e.context {
		return 0
	}
	before, after := rune(-1), rune(-1)
	if pos > 0 {
		before, _ = utf8.DecodeLastRuneInString(s[:pos])
	}
	if pos < len(s) {
		after, _ = utf8.DecodeRuneInString(s[pos:])
	}
	return syntax.EmptyOpContext(before, after)
}

// step passes a rune, -1 at the end of the text, through the threads of now, and adds those
// that go on to next. It tells whether a thread matched, which ends those behind it.
func (m *matcher) step(now, next *queue, r rune, pos, following int, after syntax.EmptyOp) (matched bool) {
	next.dense = next.dense[:0]
	for i, pc := range now.dense {
		m.steps++
		inst := &m.e.prog.Inst[pc]
		if inst.Op == syntax.InstMatch {
			copy(m.found[:m.width], now.captures[i*m.width:])
			if m.width > 0 {
				m.found[1] = pos
			}
			now.dense = now.dense[:0]
			return true
		}
		reads := false
		if inst.Op < syntax.InstRune {
			continue // it led to others
		}
		if uint32(r) < utf8.RuneSelf {
			reads = m.e.ascii[pc][r/64]>>(r%64)&1 != 0
		} else {
			reads = accepts(inst, r)
		}
		if reads {
			copy(m.capture[:m.width], now.captures[i*m.width:])
			m.add(next, inst.Out, following, after)
		}
	}
	now.dense = now.dense[:0]
	return false
}

// add adds the thread that runs, at instruction pc, and those that it leads to without
// reading, unless the queue has them.
func (m *matcher) add(q *queue, pc uint32, pos int, at syntax.EmptyOp) {
	for {
		m.steps++
		if i := q.sparse[pc]; i < uint32(len(q.dense)) && q.dense[i] == pc {
			return
		}
		n := len(q.dense)
		q.sparse[pc] = uint32(n)
		q.dense = append(q.dense, pc)
		inst := &m.e.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			m.add(q, inst.Out, pos, at)
			pc = inst.Arg
		case syntax.InstNop:
			pc = inst.Out
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^at != 0 {
				return
			}
			pc = inst.Out
		case syntax.InstCapture:
			if int(inst.Arg) >= m.width {
				pc = inst.Out
				continue
			}
			old := m.capture[inst.Arg]
			m.capture[inst.Arg] = pos
			m.add(q, inst.Out, pos, at)
			m.capture[inst.Arg] = old
			return
		case syntax.InstFail:
			return
		default:
			copy(q.captures[n*m.width:], m.capture[:m.width])
			return
		}
	}
}

// findAll calls found for each match, at most limit times, as package regexp finds them: an
// empty match right behind another match does not count.
func (m *matcher) findAll(s string, limit int, found func(at []int) error) error {
	last := -1
	for pos := 0; limit > 0 && pos <= len(s); {
		at, err := m.find(s, pos, true)
		if err != nil || at == nil {
			return err
		}
		empty := at[1] == pos
		if !empty || at[0] != last {
			limit--
			if err := found(at); err != nil {
				return err
			}
		}
		last = at[1]
		pos = at[1]
		if empty {
			_, width := utf8.DecodeRuneInString(s[pos:])
			pos += max(width, 1)
		}
		m.steps++
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

// A replacement is the parsed form of a template: texts and groups in turns.
type replacement struct {
	texts  []string // one more than groups
	groups [][]int  // the groups of a name; the first that took part in the match counts
	tries  int      // so many groups are looked at in a match
}

// group returns where the group behind the ith text is in a match; it is empty if none took part.
func (r *replacement) group(i int, at []int) (begin, end int) {
	if i < len(r.groups) {
		for _, n := range r.groups[i] {
			if at[2*n] >= 0 {
				return at[2*n], at[2*n+1]
			}
		}
	}
	return 0, 0
}

// parseReplacement reads a template as package regexp does: $1 and ${name} are groups, $$ is a
// dollar, and any other $ stands for itself.
func (e *expression) parseReplacement(template string) replacement {
	var r replacement
	var text strings.Builder
	named := map[string][]int{}
	for {
		before, after, found := strings.Cut(template, "$")
		text.WriteString(before)
		if !found {
			r.texts = append(r.texts, text.String())
			return r
		}
		if rest, isDollar := strings.CutPrefix(after, "$"); isDollar {
			text.WriteByte('$')
			template = rest
			continue
		}
		name, rest := groupName(after)
		if name == "" {
			text.WriteByte('$')
			template = after
			continue
		}
		if _, known := named[name]; !known {
			named[name] = e.groupsNamed(name)
		}
		r.texts, r.groups = append(r.texts, text.String()), append(r.groups, named[name])
		r.tries += 1 + len(named[name])
		text.Reset()
		template = rest
	}
}

// groupName cuts the name of a group off what follows a $. It returns "" if there is none.
func groupName(s string) (name, rest string) {
	braced := strings.HasPrefix(s, "{")
	if braced {
		s = s[1:]
	}
	n := strings.IndexFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if n < 0 {
		n = len(s)
	}
	name, rest = s[:n], s[n:]
	if !braced {
		return name, rest
	}
	rest, closed := strings.CutPrefix(rest, "}")
	if !closed {
		return "", ""
	}
	return name, rest
}

// groupsNamed returns the numbers of the groups of a name or number.
func (e *expression) groupsNamed(name string) (numbers []int) {
	if n, err := strconv.Atoi(name); err == nil {
		if n > e.groups || name[0] == '0' && len(name) > 1 {
			return nil
		}
		return []int{n}
	}
	for i, of := range e.names {
		if of == name {
			numbers = append(numbers, i)
		}
	}
	return numbers
}
