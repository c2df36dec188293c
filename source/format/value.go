package format

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// escaped says which bytes a JSON string has only with a backslash.
var escaped = func() (t [256]bool) {
	for c := range ' ' {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// appendText appends text, which is UTF-8, as a JSON string.
func appendText(dst, text []byte) []byte {
	dst = append(dst, '"')
	start := 0
	for i, c := range text {
		if !escaped[c] {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, text[start:]...), '"')
}

// appendLine appends the document of a line of text. A line that is not UTF-8 is there twice:
// as text, with U+FFFD for what is not a character, and as its bytes in base64.
func appendLine(dst, line []byte) []byte {
	dst = append(dst, `{"`+LineField+`":`...)
	if utf8.Valid(line) {
		return append(appendText(dst, line), '}')
	}
	dst = appendText(dst, []byte(strings.ToValidUTF8(string(line), "\uFFFD")))
	dst = append(dst, `,"`+LineBytes+`":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, line)
	return append(dst, `"}`...)
}

// appendPlain appends a field as the JSON value that it is: true, false or a number as JSON
// writes them, and text otherwise.
func appendPlain(dst, field []byte) []byte {
	if isPlain(field) {
		return append(dst, field...)
	}
	return appendText(dst, field)
}

func isPlain(field []byte) bool {
	return string(field) == "true" || string(field) == "false" || isNumber(field)
}

// isNumber reports whether a field is a number in JSON's spelling, so 007 is text.
func isNumber(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	digits := countDigits(b)
	if digits == 0 || b[0] == '0' && digits > 1 {
		return false
	}
	if b = b[digits:]; len(b) > 0 && b[0] == '.' {
		if digits = countDigits(b[1:]); digits == 0 {
			return false
		}
		b = b[1+digits:]
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		digits = countDigits(b)
		return digits > 0 && digits == len(b)
	}
	return len(b) == 0
}

func countDigits(b []byte) (n int) {
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}
