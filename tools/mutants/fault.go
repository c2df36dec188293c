package main

import (
	"bytes"
	"fmt"
	"regexp"
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
	toA, toB := assigned(a), assigned(b)
	return toA != nil && toB != nil && !toA.isIn(b) && !toB.isIn(a)
}

// A target is what a statement assigns to: a variable, or a field of what a variable is or refers to.
type target struct{ variable, field string }

// assigned returns the target of a statement, or nil if it does more than to assign.
func assigned(statement string) *target {
	statement = strings.TrimSpace(statement)
	parts := assignment.FindStringSubmatch(statement)
	if parts == nil || strings.Contains(pureCall.ReplaceAllString(statement, ""), "(") {
		return nil
	}
	variable, name := parts[1]+parts[3], parts[2]+parts[4]
	if variable == "" {
		return &target{name, ""}
	}
	return &target{variable, name}
}

// isIn tells whether a statement may read the target or assign to it: names it, has a field of
// its name, since two variables may refer to one place, or takes all fields at once, not only where they are.
func (t *target) isIn(statement string) bool {
	for _, at := range words.FindAllStringIndex(statement, -1) {
		word, before, after := statement[at[0]:at[1]], statement[:at[0]], statement[at[1]:]
		isField := strings.HasSuffix(before, ".") || strings.HasSuffix(before, "->")
		hasField := strings.HasPrefix(after, ".") || strings.HasPrefix(after, "->") || strings.HasPrefix(after, "[")
		switch {
		case t.field == "" && !isField && word == t.variable,
			t.field != "" && isField && word == t.field,
			t.field != "" && !isField && word == t.variable && !hasField && !strings.HasSuffix(before, "&"):
			return true
		}
	}
	return false
}

// Casts, calls that only return a value, and those at the beginning that change only their first argument.
var pureCall = regexp.MustCompile(`^(?:delete|free|snprintf)\(|\((?:u?int\d+_t|size_t|double|char)\)|\b(?:slices\.(?:Clone|Clip)|len|cap|min|max|append|make|string|u?int(?:8|16|32|64)?|float64|crc32\.Checksum|binary\.\w+\.(?:Append)?Uint\d+|binary\.AppendUvarint|fmt\.(?:Sprintf?|Appendf?))\(`)

// An assignment to a name or an element of it, or to such a field of what is before it. delete
// assigns to a map, free and snprintf to what they are given.
var assignment = regexp.MustCompile(`^(?:(\w+)[\w.>\[\]-]*(?:\.|->))?(\w+)(?:\[\w+\])?(?: [-+|&]?= |\+\+|--)|^(?:delete|free|snprintf)\((?:(\w+)[\w.>-]*(?:\.|->))?(\w+)[,)]`)

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
