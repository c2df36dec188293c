package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A fault replaces the bytes from start to end of a file.
type fault struct {
	file       string
	line       int
	start, end int
	kind       string
	source     string // the line in which it begins
	before     string
	after      string
	commutes   bool // of swapped statements: both orders do the same
}

func (f fault) String() string {
	return fmt.Sprintf("%s:%d %s: %s -> %s", f.file, f.line, f.kind, brief(f.before), brief(f.after))
}

// brief is a text on one line.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "nothing"
	}
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	return text
}

// apply is the text with the fault in it.
func (f fault) apply(text []byte) []byte {
	return bytes.Join([][]byte{text[:f.start], []byte(f.after), text[f.end:]}, nil)
}

// newFault describes a replacement in text.
func newFault(file string, text []byte, start, end int, kind, after string) fault {
	from := 1 + bytes.LastIndexByte(text[:start], '\n')
	source, _, _ := bytes.Cut(text[from:], []byte("\n"))
	return fault{
		file: file, line: 1 + bytes.Count(text[:start], []byte("\n")), start: start, end: end,
		kind: kind, source: string(source), before: string(text[start:end]), after: after,
	}
}

// commute tells whether two statements do the same in either order: both assign something to
// different names, call nothing that does more than return a value, and neither reads what the other assigns.
func commute(a, b string) bool {
	nameA, nameB := assigned(a), assigned(b)
	return nameA != "" && nameB != "" && !hasWord(b, nameA) && !hasWord(a, nameB)
}

// assigned returns the variable or field that a statement assigns to, or "" if it does more
// than that.
func assigned(statement string) string {
	target := assignment.FindStringSubmatch(strings.TrimSpace(statement))
	if target == nil || strings.Contains(pureCall.ReplaceAllString(strings.TrimSpace(statement), ""), "(") {
		return ""
	}
	return target[1] + target[2]
}

// Calls that only return a value, and those at the beginning that change only their first argument.
var pureCall = regexp.MustCompile(`^(?:delete|free|snprintf)\(|\b(?:slices\.(?:Clone|Clip)|len|cap|min|max|append|make|string|u?int(?:8|16|32|64)?|float64|binary\.\w+\.(?:Append)?Uint\d+|binary\.AppendUvarint|fmt\.(?:Sprintf?|Appendf?))\(`)

// An assignment to a name, or to a field of what is before it. delete assigns to a map, free and
// snprintf to what they are given.
var assignment = regexp.MustCompile(`^(?:[\w.>\[\]-]*(?:\.|->))?(\w+)(?: [-+|&]?= |\+\+|--)|^(?:delete|free|snprintf)\((?:[\w.>-]*(?:\.|->))?(\w+)[,)]`)

func hasWord(text, word string) bool {
	return slices.Contains(words.FindAllString(text, -1), word)
}

var words = regexp.MustCompile(`\w+`)

// Kinds of faults. They are chosen equally often.
const (
	kindCompare   = "comparison"
	kindBoundary  = "boundary"
	kindLogic     = "logic"
	kindSign      = "arithmetic"
	kindOffByOne  = "off by one"
	kindNegate    = "negated condition"
	kindError     = "dropped error check"
	kindDurable   = "removed sync, close or truncate"
	kindStatement = "removed statement"
	kindSwap      = "swapped statements"
)

// operators maps an operator to its fault, for Go and C alike.
var operators = map[string]struct{ kind, after string }{
	"==": {kindCompare, "!="}, "!=": {kindCompare, "=="},
	"<": {kindBoundary, "<="}, "<=": {kindBoundary, "<"},
	">": {kindBoundary, ">="}, ">=": {kindBoundary, ">"},
	"&&": {kindLogic, "||"}, "||": {kindLogic, "&&"},
	"+": {kindSign, "-"}, "-": {kindSign, "+"},
	"<<": {kindSign, ">>"}, ">>": {kindSign, "<<"},
	"&": {kindSign, "|"}, "|": {kindSign, "&"},
}
