package format

import (
	"bytes"

	"github.com/perigeedb/perigee/event"
)

// Explain puts what was read in place of the envelope in a dead letter, and otherwise says
// which setting the event may need.
func (f Format) Explain(d *event.DeadLetter) {
	if record, reason, refused := f.Refused(d.Original); refused {
		d.Original, d.Error = bytes.Clone(record), reason
	} else if hint := Hint(d.Original); f.IsJSON() && hint != "" {
		d.Error += "; " + hint
	}
}

// Hint returns what to do about an event that is not a JSON object, or "" if nothing is
// sure. It is for sources whose format is JSON.
func Hint(doc []byte) string {
	text := bytes.TrimSpace(doc)
	switch {
	case len(text) == 0:
		return ""
	case isPartOfPretty(text):
		return "this is one line of JSON that spans several: write one object per line, for example with jq -c ."
	case text[0] == '{' || text[0] == '[' || text[0] < ' ' || text[0] >= 0xf8 || bytes.HasPrefix(text, byteOrderMark):
		return ""
	case bytes.HasPrefix(text, []byte("entry ")) && bytes.Contains(text, []byte(" has no field ")):
		return "" // what the source of streams says about an entry
	case isLogfmt(text):
		return "if events are key=value pairs, set format: logfmt below the source"
	case looksLikeCSV(text):
		return "if events are CSV records, set format: csv below the source; for any text, format: lines"
	}
	return "if events are lines of text, set format: lines below the source"
}

// isPartOfPretty reports whether a line is part of an object or array that spans lines.
func isPartOfPretty(text []byte) bool {
	switch string(bytes.TrimRight(text, ", ")) {
	case "{", "[", "}", "]":
		return true
	}
	if text[0] != '"' {
		return false
	}
	end := bytes.IndexByte(text[1:], '"')
	return end >= 0 && bytes.HasPrefix(bytes.TrimSpace(text[1+end+1:]), []byte(":"))
}

func isLogfmt(text []byte) bool {
	d := Decoder{Format: Format{name: Logfmt}}
	_, reason := d.appendLogfmt(nil, text)
	return reason == "" && bytes.Count(text, []byte("=")) > 1
}

// looksLikeCSV reports whether a line has two fields or more, and none looks like part of a
// sentence.
func looksLikeCSV(text []byte) bool {
	for _, separator := range []byte(",;\t") {
		d := Decoder{Format: Format{name: CSV, separator: separator}}
		fields, reason := d.split(text, false)
		if reason != "" || len(fields) < 2 {
			continue
		}
		sentence := false
		for _, field := range fields {
			sentence = sentence || bytes.HasPrefix(field, []byte(" ")) || bytes.Count(field, []byte(" ")) > 3
		}
		if !sentence {
			return true
		}
	}
	return false
}
