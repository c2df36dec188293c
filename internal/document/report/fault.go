package report

import (
	"bytes"
	"fmt"
)

// A Code says why bytes are not a JSON document.
type Code uint8

const (
	Empty         Code = iota + 1 // nothing but white space
	NotObject                     // JSON, or the start of it, but not an object
	CutShort                      // the document ends in the middle
	WantKey                       // something else where a key belongs
	WantColon                     // something else where a colon belongs
	WantComma                     // something else where a comma or the closing bracket belongs
	WantValue                     // something that starts no value
	BadNumber                     // a number with a leading zero, a bare minus, a dot without digits
	BadEscape                     // a backslash followed by something that is no escape
	Control                       // a control character in a string that must be escaped
	BadUTF8                       // bytes that are no UTF-8
	TooDeep                       // more than MaxDepth brackets inside each other
	Trailing                      // something after the end of the document
	TooLarge                      // a document of 2 GiB and more
	ByteOrderMark                 // it starts with the byte-order mark of UTF-8 or UTF-16
	IsArray                       // it starts an array
	Gzip                          // it starts as gzip data does
	TooManyFields                 // more than MaxFields, on all levels
)

// MaxFields is how many fields a document may have, on all levels.
const MaxFields = 1 << 15

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 512

var faultText = [...]string{
	Empty:     "the document is empty",
	NotObject: "not a JSON object: an event must start with {",
	CutShort:  "the document ends too early",
	WantKey:   `expected a key in double quotes`,
	WantColon: `expected ":" after the key`,
	WantComma: `expected "," or the closing bracket`,
	WantValue: "expected a value",
	BadNumber: "not a JSON number",
	BadEscape: "invalid escape in a string",
	Control:   `control character in a string: write it as \u00XX`,
	BadUTF8:   "invalid UTF-8",
	TooDeep:   fmt.Sprintf("nested deeper than %d", MaxDepth),
	Trailing:  "data after the end of the document",
	TooLarge:  "the document is larger than 2 GiB",

	ByteOrderMark: "not a JSON object but a byte-order mark: write UTF-8 without one",
	IsArray:       "not a JSON object but an array: send each element as an event of its own (in a file: one object per line)",
	Gzip:          "not a JSON object but gzip data: send it uncompressed",

	TooManyFields: fmt.Sprintf("more than %d fields", MaxFields),
}

func (f Code) String() string {
	if int(f) >= len(faultText) {
		return "there is no memory left to read the document"
	}
	return faultText[f]
}

// NotAnObject returns why a document whose first byte, after white space, is not {
// is refused. The same is in index.c.
func NotAnObject(text []byte) Code {
	for _, mark := range []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return ByteOrderMark
		}
	}
	switch {
	case bytes.HasPrefix(text, []byte("[")):
		return IsArray
	case bytes.HasPrefix(text, []byte("\x1f\x8b")):
		return Gzip
	}
	return NotObject
}

// A SyntaxError is a document that is refused.
type SyntaxError struct {
	Code   Code
	Offset int // of the first byte that is wrong
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%v (at byte %d)", e.Code, e.Offset) }
