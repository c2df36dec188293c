// Package format turns what a source reads into JSON documents: lines of text, CSV
// records or logfmt. Every kind of source uses it, so that a setting means the same in all
// of them.
//
// A record that its format does not allow is passed on as it is, in an envelope that is not
// JSON: the pipeline makes it a dead letter with the reason and the bytes that were read.
//
// A Format is safe for concurrent use. A Decoder has one owner at a time.
package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/perigeedb/perigee/event"
)

// Settings are the settings that sources share. They are embedded in theirs.
type Settings struct {
	Format    string   `yaml:"format" default:"json" choices:"json,lines,csv,logfmt" example:"csv" help:"what an event is: json, lines (any text), csv or logfmt"`
	Separator string   `yaml:"separator" default:"\",\"" example:"tab" help:"with csv: the character between fields, or tab"`
	Columns   []string `yaml:"columns" default:"(the first line has them)" example:"[id, name]" help:"with csv: the names of the fields"`
}

// Values of Settings.Format.
const (
	JSON   = "json"
	Lines  = "lines"
	CSV    = "csv"
	Logfmt = "logfmt"
)

// The fields of an event that was a line. LineBytes is there only if the line is not UTF-8.
const (
	LineField = "line"
	LineBytes = "line_base64"
)

// A Format is made of checked Settings. The zero value is JSON.
type Format struct {
	name      string // "" for JSON
	separator byte
	names     []string
	keys      [][]byte // of names, as JSON strings between a comma and a colon
	keyBytes  int      // of all keys
}

// New checks the settings of a source whose events are lines of a file or a body.
func New(c Settings) (Format, error) {
	f := Format{name: c.Format}
	switch c.Format {
	case "", JSON:
		f.name = ""
	case Lines, Logfmt:
	case CSV:
		var err error
		if f.separator, err = parseSeparator(c.Separator); err != nil {
			return Format{}, err
		}
		if len(c.Columns) > 0 {
			return f.withNames(c.Columns)
		}
		return f, nil
	default:
		return Format{}, event.WithHint(fmt.Errorf("unknown format %q", c.Format), "use json, lines, csv or logfmt")
	}
	if c.Separator != "" || len(c.Columns) > 0 {
		return Format{}, event.WithHint(fmt.Errorf("separator and columns are settings of format: csv"), "add format: csv, or leave them out")
	}
	return f, nil
}

// NewMessages checks the settings of a source whose events are messages, each by itself: no
// first line names the fields of a CSV record.
func NewMessages(c Settings) (Format, error) {
	f, err := New(c)
	if err == nil && f.HasHeader() {
		err = event.WithHint(fmt.Errorf("format: csv needs columns here: a message has no first line that names the fields"), "add columns: [FIRST, SECOND, …]")
	}
	return f, err
}

func parseSeparator(text string) (byte, error) {
	switch {
	case text == "":
		return ',', nil
	case text == "tab":
		return '\t', nil
	case len(text) == 1 && text[0] < utf8.RuneSelf && text[0] != '"' && text[0] != '\n' && text[0] != '\r' && text[0] != 0:
		return text[0], nil
	}
	return 0, event.WithHint(fmt.Errorf("invalid separator %q", text), `use one ASCII character, as ";" or "|", or tab`)
}

// IsJSON reports whether events are documents as they are read.
func (f Format) IsJSON() bool { return f.name == "" }

// HasHeader reports whether the first record names the fields of the others.
func (f Format) HasHeader() bool { return f.name == CSV && len(f.names) == 0 }

// MaySpanLines reports whether a record may have line breaks inside.
func (f Format) MaySpanLines() bool { return f.name == CSV }

// IsBlank reports whether a line is no event. Every line of text is one.
func (f Format) IsBlank(line []byte) bool {
	switch f.name {
	case Lines:
		return false
	case CSV:
		return len(line) == 0
	}
	return len(bytes.TrimSpace(line)) == 0
}

// A Decoder turns records of one partition into documents.
type Decoder struct {
	Format
	data   []byte // of the batch before
	fields [][]byte
	text   []byte          // of fields in quotes
	record int             // number of the logfmt record, from 1 on
	seen   map[string]*int // by key: the last record that has it
}

// NewDecoder returns a decoder. If the format has a header, ReadHeader comes first.
func (f Format) NewDecoder() *Decoder { return &Decoder{Format: f} }

// Decode replaces the records of b by documents. It keeps the memory of the records for the
// next batch. The range, with its fingerprints, stays that of the records. broken are the
// indexes of records that the source could not read: each is a text that says why.
func (d *Decoder) Decode(b *event.Batch, broken ...int) {
	if d.IsJSON() {
		return
	}
	data, start := d.data[:0], uint32(0)
	for i, end := range b.Ends {
		if record := b.Data[start:end]; len(broken) > 0 && broken[0] == i {
			data, broken = appendRefused(data, string(record), record), broken[1:]
		} else {
			data = d.Append(data, record)
		}
		b.Ends[i], start = uint32(len(data)), end
	}
	b.Data, d.data = data, b.Data
	if cap(d.data) > keepBytes {
		d.data = nil
	}
}

// keepBytes is the memory beyond which a buffer is not kept: a batch seldom needs it.
const keepBytes = 8 << 20

// Append appends the document of a record to dst, or its envelope if the format does not
// allow the record.
func (d *Decoder) Append(dst, record []byte) []byte {
	start := len(dst)
	var reason string
	switch d.name {
	case Lines:
		return appendLine(dst, record)
	case CSV:
		dst, reason = d.appendCSV(dst, record)
	case Logfmt:
		dst, reason = d.appendLogfmt(dst, record)
	default:
		return append(dst, record...)
	}
	if reason != "" {
		return appendRefused(dst[:start], "not "+d.name+": "+reason, record)
	}
	return dst
}

// AppendAgain is Append for an event that was read before, perhaps in another format: an
// object is appended as it is.
func (d *Decoder) AppendAgain(dst, record []byte) []byte {
	if d.IsJSON() || isObject(record) {
		return append(dst, record...)
	}
	return d.Append(dst, record)
}

func isObject(doc []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) && json.Valid(doc)
}

// DecodeAgain is Decode for events that were read before, perhaps in another format.
func (d *Decoder) DecodeAgain(b *event.Batch) {
	if d.IsJSON() {
		return
	}
	var again event.Batch
	for i := range b.Len() {
		again.Data = d.AppendAgain(again.Data, b.Doc(i))
		again.Ends = append(again.Ends, uint32(len(again.Data)))
	}
	b.Data, b.Ends = again.Data, again.Ends
}

// An envelope is a zero byte, which no document starts with, the reason, a zero byte and the
// record.
func appendRefused(dst []byte, reason string, record []byte) []byte {
	dst = append(append(append(dst, 0), reason...), 0)
	return append(dst, record...)
}

// Refused returns the record in an envelope, and why the format does not allow it.
func (f Format) Refused(doc []byte) (record []byte, reason string, ok bool) {
	if f.IsJSON() || len(doc) == 0 || doc[0] != 0 {
		return nil, "", false
	}
	text, record, ok := bytes.Cut(doc[1:], []byte{0})
	return record, string(text), ok
}
