package pure

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapeLen returns the length of the escape at the start of s, or 0 if it is invalid.
func escapeLen(s []byte) int {
	switch {
	case len(s) < 2:
		return 0
	case s[1] == 'u':
		if _, ok := hex4(s); ok {
			return 6
		}
		return 0
	case strings.IndexByte(`"\/bfnrt`, s[1]) >= 0:
		return 2
	}
	return 0
}

// hex4 parses the four digits of \uXXXX.
func hex4(s []byte) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// unescape appends the decoded contents of a string. A lone surrogate becomes U+FFFD.
func unescape(out, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(out, s...)
		}
		out = append(out, s[:i]...)
		s = s[i:]
		if s[1] == 'u' {
			out, s = unescapeRune(out, s)
			continue
		}
		out = append(out, plainOf(s[1]))
		s = s[2:]
	}
}

func unescapeRune(out, s []byte) (appended, rest []byte) {
	r, _ := hex4(s)
	s = s[6:]
	if utf16.IsSurrogate(r) {
		low, ok := hex4(s)
		if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
			s = s[6:]
		}
	}
	return utf8.AppendRune(out, r), s
}

func plainOf(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// AppendString appends s, which must be UTF-8, as a JSON string. It escapes only characters that
// JSON requires to be escaped.
func AppendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out = append(out, s[from:i]...)
		from = i + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			out = append(out, '\\', `"\bfnrt`[short])
		} else {
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(out, s[from:]...), '"')
}
