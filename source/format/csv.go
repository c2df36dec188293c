package format

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// Bounds of a header: its names are in each document.
const (
	headerBytesMax  = 64 << 10
	headerFieldsMax = 4096
)

// QuotedMax is how large a CSV record with a quote that is not closed may get. A longer one
// is a quote by mistake, which would swallow the rest of the file.
const QuotedMax = 1 << 20

// withNames returns the format with these names of fields.
func (f Format) withNames(names []string) (Format, error) {
	f.names, f.keys, f.keyBytes = nil, nil, 0
	seen, size := map[string]bool{}, 0
	for _, name := range names {
		switch {
		case name == "" || seen[name]:
			return Format{}, event.WithHint(fmt.Errorf("the first line has the name %q twice, or empty", name),
				"the first line of a CSV file names the fields; for a file without one, set columns")
		case !utf8.ValidString(name):
			return Format{}, fmt.Errorf("the name of field %d is not UTF-8", len(f.names)+1)
		}
		seen[name] = true
		f.names = append(f.names, name)
		key := append(appendText([]byte{','}, []byte(name)), ':')
		f.keys, f.keyBytes = append(f.keys, key), f.keyBytes+len(key)
		size += len(name)
	}
	if size > headerBytesMax || len(names) > headerFieldsMax {
		return Format{}, fmt.Errorf("a CSV record has at most %d fields, and their names %d bytes", headerFieldsMax, headerBytesMax)
	}
	return f, nil
}

// A Row makes documents of CSV fields that were split already. Both sources and imports use
// it, so that a file means the same to them.
type Row struct {
	names []string
	keys  [][]byte
	text  []bool
}

// NewRow returns a Row for fields with these names. Fields whose name is in text are always
// text.
func NewRow(names []string, text map[string]bool) (*Row, error) {
	if len(names) > 0 {
		names = append([]string{string(bytes.TrimPrefix([]byte(names[0]), byteOrderMark))}, names[1:]...)
	}
	f, err := Format{name: CSV}.withNames(names)
	if err != nil {
		return nil, err
	}
	r := &Row{names: f.names, keys: f.keys, text: make([]bool, len(names))}
	for i, name := range names {
		r.text[i] = text[name]
	}
	return r, nil
}

// Append appends the document of fields. There are as many as names.
func (r *Row) Append(dst []byte, fields []string) []byte {
	start := len(dst)
	for i, field := range fields {
		if field == "" {
			continue
		}
		dst = append(dst, r.keys[i]...)
		value := []byte(strings.ToValidUTF8(field, "\uFFFD"))
		if r.text[i] {
			dst = appendText(dst, value)
		} else {
			dst = appendPlain(dst, value)
		}
	}
	return closeObject(dst, start)
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// ReadHeader takes the names of the fields from the first record.
func (d *Decoder) ReadHeader(record []byte) error {
	fields, reason := d.split(bytes.TrimPrefix(record, byteOrderMark), false)
	if reason != "" {
		return event.WithHint(errors.New("the first line does not name the fields: "+reason), "the first line of CSV names the fields; without one, set columns")
	}
	var names []string
	for _, field := range fields {
		names = append(names, string(field))
	}
	f, err := d.withNames(names)
	if err == nil {
		d.Format = f
	}
	return err
}

func (d *Decoder) appendCSV(dst, record []byte) (_ []byte, reason string) {
	ascii, clean := scanText(record)
	fields, reason := d.split(record, clean)
	d.fields = fields
	if reason == "" && len(fields) != len(d.keys) {
		reason = fmt.Sprintf("the record has %d fields, not %d", len(fields), len(d.keys))
	}
	if reason != "" {
		return dst, reason
	}
	if !ascii && !utf8.Valid(record) {
		return dst, "it is not UTF-8"
	}
	if clean && len(d.text) == 0 { // no field has quotes inside
		return d.appendVerbatim(dst, fields, len(record)), ""
	}
	start := len(dst)
	for i, field := range fields {
		if len(field) > 0 {
			dst = appendPlain(append(dst, d.keys[i]...), field)
		}
	}
	return closeObject(dst, start), ""
}

// appendVerbatim appends the document of fields, of size bytes, that need no backslash.
func (d *Decoder) appendVerbatim(dst []byte, fields [][]byte, size int) []byte {
	start := len(dst)
	dst = slices.Grow(dst, d.keyBytes+size+2*len(fields))
	out, n := dst[:cap(dst)], start
	for i, field := range fields {
		if len(field) == 0 {
			continue
		}
		n += copy(out[n:], d.keys[i])
		if isPlain(field) {
			n += copy(out[n:], field)
			continue
		}
		out[n] = '"'
		n += 1 + copy(out[n+1:], field)
		out[n] = '"'
		n++
	}
	return closeObject(out[:n], start)
}

// closeObject ends an object. A comma precedes each key from start on.
func closeObject(dst []byte, start int) []byte {
	if len(dst) == start {
		return append(dst, "{}"...)
	}
	dst[start] = '{'
	return append(dst, '}')
}

// split returns the fields of a record, valid until the next call, or what is wrong with it.
// A clean record has no control characters.
func (d *Decoder) split(record []byte, clean bool) (fields [][]byte, reason string) {
	fields, d.text = d.fields[:0], d.text[:0]
	newline := !clean && bytes.IndexByte(record, '\n') >= 0
	quote := findByte(record, '"')
	for {
		if quote == 0 && len(record) > 0 {
			field, rest, reason := d.unquote(record[1:], len(fields)+1, clean)
			if reason != "" {
				return fields, reason
			}
			fields = append(fields, field)
			if len(rest) == 0 {
				return fields, ""
			}
			if rest[0] != d.separator {
				return fields, fmt.Sprintf("field %d has text after its closing quote", len(fields))
			}
			record = rest[1:]
			quote = findByte(record, '"')
			continue
		}
		end := findByte(record, d.separator)
		field := record[:end]
		switch {
		case quote < end:
			return fields, fmt.Sprintf(`field %d has a quote inside: put the field in quotes, and write "" for each`, len(fields)+1)
		case newline && bytes.IndexByte(field, '\n') >= 0:
			return fields, fmt.Sprintf("field %d has a line break: put the field in quotes", len(fields)+1)
		}
		fields = append(fields, field)
		if end == len(record) {
			return fields, ""
		}
		record, quote = record[end+1:], quote-(end+1)
	}
}

// findByte returns the offset of the first c in text, or the length of text.
func findByte(text []byte, c byte) int {
	if i := bytes.IndexByte(text, c); i >= 0 {
		return i
	}
	return len(text)
}

// unquote returns the field with that number whose opening quote precedes text, and what follows its closing
// quote. As in imports, a line break inside is a newline.
func (d *Decoder) unquote(text []byte, number int, clean bool) (field, rest []byte, reason string) {
	end := bytes.IndexByte(text, '"')
	if end < 0 {
		return nil, nil, fmt.Sprintf("the quote of field %d is not closed", number)
	}
	if (end+1 == len(text) || text[end+1] != '"') && (clean || bytes.IndexByte(text[:end], '\r') < 0) {
		return text[:end], text[end+1:], ""
	}
	start := len(d.text)
	for {
		d.text = appendLineBreaks(d.text, text[:end])
		text = text[end+1:]
		if len(text) == 0 || text[0] != '"' {
			return d.text[start:len(d.text):len(d.text)], text, ""
		}
		d.text = append(d.text, '"')
		text = text[1:]
		if end = bytes.IndexByte(text, '"'); end < 0 {
			return nil, nil, fmt.Sprintf("the quote of field %d is not closed", number)
		}
	}
}

// appendLineBreaks appends text with a newline for each CR LF.
func appendLineBreaks(dst, text []byte) []byte {
	for {
		i := bytes.Index(text, []byte("\r\n"))
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(append(dst, text[:i]...), '\n')
		text = text[i+2:]
	}
}

// A Scanner finds the ends of records in text that arrives in parts: a newline inside the
// quotes of CSV ends none. Its zero value is for formats whose records are lines.
type Scanner struct {
	separator byte // 0 for lines
	state     scanState
}

type scanState uint8

const (
	fieldStart scanState = iota
	unquoted
	quoted
	quoteSeen // inside quotes: the end of the field, or the first of two
)

// NewScanner returns a scanner at the start of a record.
func (f Format) NewScanner() Scanner { return Scanner{separator: f.separator} }

// Open reports whether the record goes on after part, which ends with a newline or has none.
// The record began with the parts since the last Reset.
func (s *Scanner) Open(part []byte) bool {
	if s.separator == 0 {
		return false
	}
	for len(part) > 0 {
		i := bytes.IndexByte(part, '"')
		switch {
		case s.state == quoteSeen && i == 0:
			s.state, part = quoted, part[1:]
		case s.state == quoteSeen:
			s.state = unquoted
			if part[0] == s.separator {
				s.state, part = fieldStart, part[1:]
			}
		case s.state == quoted && i < 0:
			return true
		case s.state == quoted:
			s.state, part = quoteSeen, part[i+1:]
		case i < 0:
			if s.state = unquoted; part[len(part)-1] == s.separator {
				s.state = fieldStart
			}
			return false
		case i == 0 && s.state == fieldStart || i > 0 && part[i-1] == s.separator:
			s.state, part = quoted, part[i+1:]
		default:
			s.state, part = unquoted, part[i+1:]
		}
	}
	return s.state == quoted
}

// Reset is called where a record ends.
func (s *Scanner) Reset() { s.state = fieldStart }

// Records returns the records of text, without their newlines.
func (f Format) Records(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		scanner := f.NewScanner()
		for len(text) > 0 {
			end := 0
			for {
				i := bytes.IndexByte(text[end:], '\n')
				if i < 0 {
					end = len(text)
					break
				}
				line := text[end : end+i+1]
				if end += i + 1; !scanner.Open(line) {
					break
				}
			}
			scanner.Reset()
			record := bytes.TrimSuffix(bytes.TrimSuffix(text[:end], []byte("\n")), []byte("\r"))
			if text = text[end:]; !yield(record) {
				return
			}
		}
	}
}
