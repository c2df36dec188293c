package report

import (
	"bytes"
	"fmt"
)

// A Code is the reason why bytes are not a JSON document.
type Code uint8

const (
	Empty         Code = iota + 1 // only white space
	NotObject                     // JSON, or the start of it, but not an object
	CutShort                      // the document is truncated
	WantKey                       // something other than a key
	WantColon                     // something other than a colon
	WantComma                     // something other than a comma or the closing bracket
	WantValue                     // something that does not start a value
	BadNumber                     // a number with a leading zero, a bare minus, a dot without digits
	BadEscape                     // an invalid escape
	Control                       // a control character in a string that must be escaped
	BadUTF8                       // invalid UTF-8
	TooDeep                       // more than MaxDepth nested brackets
	Trailing                      // data after the end of the document
	TooLarge                      // a document of 2 GiB or more
	ByteOrderMark                 // it starts with the byte-order mark of UTF-8 or UTF-16
	IsArray                       // it starts with an array
	Gzip                          // it starts like gzip data
	TooManyFields                 // more than MaxFields, on all levels
)

// MaxFields is the largest number of fields of a document, on all levels.
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

// NotAnObject returns the reason why a document is invalid whose first byte, after white space, is
// not {. index.c does the same.
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

// A SyntaxError describes an invalid document.
type SyntaxError struct {
	Code   Code
	Offset int // of the first invalid byte
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%v (at byte %d)", e.Code, e.Offset) }
