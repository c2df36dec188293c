package format

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
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

const ones, highs = 0x0101010101010101, 0x8080808080808080

// scanText reports whether text is ASCII, and whether it has neither backslashes nor control
// characters.
func scanText(text []byte) (ascii, clean bool) {
	var seen, found uint64
	i := 0
	for ; i+8 <= len(text); i += 8 {
		word := binary.LittleEndian.Uint64(text[i : i+8])
		slash := word ^ ones*'\\'
		seen |= word
		found |= (word-ones*' ')&^word | (slash-ones)&^slash
	}
	clean = found&highs == 0
	for _, c := range text[i:] {
		seen |= uint64(c)
		clean = clean && c >= ' ' && c != '\\'
	}
	return seen&highs == 0, clean
}

// appendText appends text, which is UTF-8, as a JSON string.
func appendText(dst, text []byte) []byte {
	dst, _ = appendString(dst, text)
	return dst
}

// appendString appends text as a JSON string, and reports whether it is ASCII. It copies
// eight bytes at a time, up to the first that needs a backslash.
func appendString(dst, text []byte) (_ []byte, ascii bool) {
	const room = 8 // for an escape, or a word
	dst = slices.Grow(append(dst, '"'), len(text)+2*room)
	out, n, seen := dst[:cap(dst)], len(dst), uint64(0)
	for i := 0; i < len(text); {
		if n+2*room > len(out) {
			out = slices.Grow(out[:n], len(text)-i+16*room)
			out = out[:cap(out)]
		}
		if i+8 <= len(text) {
			word := binary.LittleEndian.Uint64(text[i:])
			binary.LittleEndian.PutUint64(out[n:], word)
			seen |= word
			quote, slash := word^(ones*'"'), word^(ones*'\\')
			// A high bit is set in a byte that is a control character, a quote or a backslash;
			// a borrow may set others, but only after the first of those.
			found := ((word-ones*' ')&^word | (quote-ones)&^quote | (slash-ones)&^slash) & highs
			clean := 8
			if found != 0 {
				clean = bits.TrailingZeros64(found) / 8
			}
			if n, i = n+clean, i+clean; found == 0 {
				continue
			}
		}
		c := text[i]
		i++
		seen |= uint64(c)
		switch {
		case !escaped[c]:
			out[n] = c
			n++
		case short[c] != 0:
			out[n], out[n+1] = '\\', short[c]
			n += 2
		default:
			n += copy(out[n:], []byte{'\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return append(out[:n], '"'), seen&highs == 0
}

// short are the escapes of one letter.
var short = [256]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't'}

// appendLine appends the document of a line of text. A line that is not UTF-8 is there twice:
// as text, with U+FFFD for what is not a character, and as its bytes in base64.
func appendLine(dst, line []byte) []byte {
	dst = append(dst, `{"`+LineField+`":`...)
	start := len(dst)
	dst, ascii := appendString(dst, line)
	if ascii || utf8.Valid(line) {
		return append(dst, '}')
	}
	dst = appendText(dst[:start], []byte(strings.ToValidUTF8(string(line), "\uFFFD")))
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
	if len(field) == 0 {
		return false
	}
	switch c := field[0]; {
	case c == 't':
		return string(field) == "true"
	case c == 'f':
		return string(field) == "false"
	default:
		return c <= '9' && isNumber(field)
	}
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
