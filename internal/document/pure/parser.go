package pure

import (
	"bytes"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/document/report"
)

// A node is one value of the text. Nodes are in the order of the text; the descendants of a
// container are the nodes up to next.
type node struct {
	kind       Kind
	escaped    bool   // a string with backslashes
	keyEscaped bool   // the key has backslashes
	keyed      bool   // a member of an object
	key        [2]int // offsets of the key in the text, without quotes
	start, end int    // offsets of the value
	next       int    // index after the last node of this value
	count      int    // number of children
}

// A parser reads one document. After an error, at is the offset of the first invalid byte.
type parser struct {
	text  []byte
	at    int
	depth int
	node  []node
}

const whiteSpace = " \t\r\n"

const textMax = 1<<31 - 1

// document parses an object, with optional white space around it.
func (p *parser) document() report.Code {
	if len(p.text) > textMax {
		return report.TooLarge
	}
	p.skipSpace()
	switch {
	case p.at == len(p.text):
		p.at = 0
		return report.Empty
	case p.text[p.at] != '{':
		return report.NotAnObject(p.text[p.at:])
	}
	return p.whole()
}

// anything parses a value of any kind, with optional white space around it, of at most textMax
// bytes.
func (p *parser) anything() report.Code {
	p.skipSpace()
	if p.at == len(p.text) {
		return report.Empty
	}
	return p.whole()
}

// whole parses the value at p.at and checks that nothing follows.
func (p *parser) whole() report.Code {
	end := len(bytes.TrimRight(p.text, whiteSpace))
	p.text = p.text[:end]
	if bad := invalidUTF8(p.text); bad < end {
		p.at = bad
		return report.BadUTF8
	}
	if fault := p.value(node{}); fault != 0 {
		return fault
	}
	p.skipSpace()
	if p.at < end {
		return report.Trailing
	}
	return p.checkFields()
}

func (p *parser) checkFields() report.Code {
	fields := 0
	for i := range p.node {
		if !p.node[i].keyed {
			continue
		}
		if fields++; fields > report.MaxFields {
			p.at = p.node[i].key[0] - 1
			return report.TooManyFields
		}
	}
	return 0
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or the length.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return len(text)
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
}

func (p *parser) skipSpace() {
	for p.at < len(p.text) && isSpace(p.text[p.at]) {
		p.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
func isDigit(c byte) bool { return c-'0' < 10 }

// next returns the byte at p.at, or 0 at the end.
func (p *parser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// unexpected returns the error want, or CutShort at the end of the text.
func (p *parser) unexpected(want report.Code) report.Code {
	if p.at >= len(p.text) {
		return report.CutShort
	}
	return want
}

// value parses a value into n, whose key is already set.
func (p *parser) value(n node) report.Code {
	n.start = p.at
	i := len(p.node)
	p.node = append(p.node, n)
	var fault report.Code
	switch c := p.next(); {
	case c == '{':
		fault = p.container(i, Object)
	case c == '[':
		fault = p.container(i, Array)
	case c == '"':
		p.node[i].kind = String
		p.node[i].escaped, fault = p.string()
	case c == '-' || isDigit(c):
		p.node[i].kind = Number
		fault = p.number()
	default:
		p.node[i].kind, fault = p.literal()
	}
	p.node[i].end, p.node[i].next = p.at, len(p.node)
	return fault
}

func (p *parser) container(i int, kind Kind) report.Code {
	if p.depth == report.MaxDepth {
		return report.TooDeep
	}
	closing := byte('}')
	if kind == Array {
		closing = ']'
	}
	p.node[i].kind = kind
	p.depth++
	p.at++
	p.skipSpace()
	for p.next() != closing {
		if fault := p.child(i, closing); fault != 0 {
			return fault
		}
	}
	p.at++
	p.depth--
	return 0
}

// child parses an element or a member, and a comma after it.
func (p *parser) child(i int, closing byte) report.Code {
	var n node
	if p.node[i].kind == Object {
		if fault := p.key(&n); fault != 0 {
			return fault
		}
	}
	p.node[i].count++
	if fault := p.value(n); fault != 0 {
		return fault
	}
	p.skipSpace()
	if p.next() == closing {
		return 0
	}
	if p.next() != ',' {
		return p.unexpected(report.WantComma)
	}
	p.at++
	p.skipSpace()
	if p.next() != closing {
		return 0
	}
	if closing == ']' {
		return report.WantValue
	}
	return report.WantKey
}

func (p *parser) key(n *node) report.Code {
	if p.next() != '"' {
		return p.unexpected(report.WantKey)
	}
	start := p.at + 1
	escaped, fault := p.string()
	if fault != 0 {
		return fault
	}
	n.keyed, n.keyEscaped, n.key = true, escaped, [2]int{start, p.at - 1}
	p.skipSpace()
	if p.next() != ':' {
		return p.unexpected(report.WantColon)
	}
	p.at++
	p.skipSpace()
	return 0
}

func (p *parser) string() (escaped bool, fault report.Code) {
	for p.at++; p.at < len(p.text); {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return escaped, 0
		case c == '\\':
			n := escapeLen(p.text[p.at:])
			if n == 0 {
				return true, report.BadEscape
			}
			escaped = true
			p.at += n
		case c < 0x20:
			return escaped, report.Control
		default:
			p.at++
		}
	}
	return escaped, report.CutShort
}

func (p *parser) number() report.Code {
	if p.next() == '-' {
		p.at++
	}
	if p.next() == '0' {
		p.at++
	} else if !p.digits() {
		return p.unexpected(report.BadNumber)
	}
	if p.next() == '.' {
		p.at++
		if !p.digits() {
			return p.unexpected(report.BadNumber)
		}
	}
	if p.next()|0x20 == 'e' {
		p.at++
		if p.next() == '+' || p.next() == '-' {
			p.at++
		}
		if !p.digits() {
			return p.unexpected(report.BadNumber)
		}
	}
	if isDigit(p.next()) {
		return report.BadNumber // after a leading zero
	}
	return 0
}

// digits skips digits and reports whether there were any.
func (p *parser) digits() bool {
	from := p.at
	for isDigit(p.next()) {
		p.at++
	}
	return p.at > from
}

func (p *parser) literal() (Kind, report.Code) {
	kind, word := Null, "null"
	switch p.next() {
	case 't':
		kind, word = True, "true"
	case 'f':
		kind, word = False, "false"
	case 'n':
	default:
		return Null, p.unexpected(report.WantValue)
	}
	for i := range len(word) {
		if p.next() != word[i] {
			return kind, p.unexpected(report.WantValue)
		}
		p.at++
	}
	return kind, 0
}
