package format

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// appendLogfmt appends the document of key=value pairs between spaces. A key alone is true.
func (d *Decoder) appendLogfmt(dst, record []byte) (_ []byte, reason string) {
	if !utf8.Valid(record) {
		return dst, "it is not UTF-8"
	}
	if d.record++; d.seen == nil || len(d.seen) > seenMax {
		d.seen = map[string]*int{}
	}
	start, values := len(dst), 0
	dst = append(dst, '{')
	for rest := trimSpaces(record); len(rest) > 0; rest = trimSpaces(rest) {
		end := bytes.IndexAny(rest, " \t\r\n=\"")
		if end < 0 {
			end = len(rest)
		}
		key := rest[:end]
		switch rest = rest[end:]; {
		case end == 0:
			return dst, fmt.Sprintf("no key before %q", clip(rest))
		case len(rest) > 0 && rest[0] == '"':
			return dst, fmt.Sprintf("key %q has a quote", clip(key))
		case d.hasSeen(key):
			return dst, fmt.Sprintf("key %q is there twice", clip(key))
		}
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, key), ':')
		if len(rest) == 0 || rest[0] != '=' {
			dst = append(dst, "true"...)
			continue
		}
		values++
		if dst, rest, reason = d.appendLogfmtValue(dst, rest[1:]); reason != "" {
			return dst, fmt.Sprintf("key %q: %s", clip(key), reason)
		}
	}
	if values == 0 {
		return dst, "it has no key=value"
	}
	return append(dst, '}'), ""
}

// seenMax is how many keys are remembered from record to record.
const seenMax = 1 << 10

// hasSeen reports whether the record has had the key before.
func (d *Decoder) hasSeen(key []byte) bool {
	last := d.seen[string(key)]
	if last == nil { // a copy of the key is allocated for the first record that has it
		last = new(int)
		d.seen[string(key)] = last
	}
	again := *last == d.record
	*last = d.record
	return again
}

// appendLogfmtValue appends the value that text starts with, and returns what follows it.
func (d *Decoder) appendLogfmtValue(dst, text []byte) (_, rest []byte, reason string) {
	if len(text) == 0 || text[0] != '"' {
		end := bytes.IndexAny(text, " \t\r\n\"=")
		if end < 0 {
			end = len(text)
		}
		if end < len(text) && (text[end] == '"' || text[end] == '=') {
			return dst, nil, fmt.Sprintf("the value has %q: put it in quotes", text[end:end+1])
		}
		return appendPlain(dst, text[:end]), text[end:], ""
	}
	d.text = d.text[:0]
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if rest = text[i+1:]; len(rest) > 0 && bytes.IndexByte([]byte(" \t\r\n"), rest[0]) < 0 {
				return dst, nil, "text follows the closing quote"
			}
			return appendText(dst, d.text), rest, ""
		case c != '\\':
			d.text = append(d.text, c)
		case i+1 == len(text):
		default:
			i++
			at := bytes.IndexByte([]byte(`"\ntr`), text[i])
			if at < 0 {
				return dst, nil, fmt.Sprintf(`unknown escape \%c: use \" \\ \n \t \r`, text[i])
			}
			d.text = append(d.text, "\"\\\n\t\r"[at])
		}
	}
	return dst, nil, "the quote is not closed"
}

func trimSpaces(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// clip shortens text for a message.
func clip(text []byte) []byte {
	const maxBytes = 40
	if len(text) <= maxBytes {
		return text
	}
	return append(bytes.ToValidUTF8(text[:maxBytes:maxBytes], nil), "…"...)
}
