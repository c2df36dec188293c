package main

import (
	"bytes"
	"fmt"
	"strings"
)

// A fault replaces the bytes from start to end of a file.
type fault struct {
	file       string
	line       int
	start, end int
	kind       string
	before     string
	after      string
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
	return fault{
		file: file, line: 1 + bytes.Count(text[:start], []byte("\n")), start: start, end: end,
		kind: kind, before: string(text[start:end]), after: after,
	}
}

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
