package computed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/internal/document/report"
)

// cells hold the values of one column as JSON, each in an object of its own under
// valueKey, as the extractor that checks their type expects.
type cells struct {
	data  []byte
	spans []span // by row; a row without a value has none
	ends  []uint32
	rows  []int // by document: its row
}

type span struct{ start, end int }

const (
	valueKey = "v"
	opening  = `{"v":`
)

func (c *cells) reset(rows int) {
	c.data, c.ends, c.rows = c.data[:0], c.ends[:0], c.rows[:0]
	c.spans = append(c.spans[:0], make([]span, rows)...)
}

// set sets the value of a row. Call it in the order of the rows.
func (c *cells) set(row int, value []byte) {
	c.data = append(c.data, opening...)
	c.spans[row] = span{len(c.data), len(c.data) + len(value)}
	c.data = append(append(c.data, value...), '}')
	c.ends = append(c.ends, uint32(len(c.data)))
	c.rows = append(c.rows, row)
}

func (c *cells) value(row int) []byte { return c.data[c.spans[row].start:c.spans[row].end] }

// rejectMistyped rejects the rows whose value is not of the column's type.
func (w *computation) rejectMistyped(c *Column, checker *document.Extractor) error {
	w.checked.Reset()
	found, err := checker.Extract(w.cells.data, w.cells.ends, &w.checked)
	if err != nil {
		return err
	}
	for _, bad := range found.Rejected {
		w.rejectRow(w.cells.rows[bad.Row], w.mistyped(c, bad))
	}
	return nil
}

func (w *computation) mistyped(c *Column, bad report.Rejected) event.DeadLetter {
	d := event.DeadLetter{Stage: "column", Error: bad.Reason, Script: w.script.String()}
	if c.Code != nil {
		d.Script = c.Code.String()
	}
	return d
}

// addColumn adds the column to the rows and removes rejected rows.
func (w *computation) addColumn(c *Column) {
	next := &w.added[0]
	if next == w.rows {
		next = &w.added[1]
	}
	next.Reset()
	quoted := pure.AppendString(nil, c.Name)
	numbers, sources := w.numbers[:0], w.sourceRows[:0]
	for i, row := range w.cells.rows {
		if w.rejected[row] {
			continue
		}
		value := w.fieldValue(c, i, row)
		if w.rejected[row] {
			continue
		}
		next.Data = setField(next.Data, w.rows.Doc(row), c.Name, quoted, value)
		next.Ends = append(next.Ends, uint32(len(next.Data)))
		next.From = append(next.From, w.rows.From[row])
		if len(w.rows.To) > 0 {
			next.To = append(next.To, w.rows.To[row])
		}
		numbers, sources = append(numbers, w.numbers[row]), append(sources, w.sourceRows[row])
	}
	w.numbers, w.sourceRows = numbers, sources
	w.rows = next
}

// fieldValue returns the JSON that goes into the row, whose cell is cell i.
func (w *computation) fieldValue(c *Column, i, row int) []byte {
	value := w.cells.value(row)
	switch {
	case c.Type == event.Timestamp && w.checked.Vectors[0].Null[i] == 0 && value[0] != '"':
		return appendTime(nil, time.UnixMicro(w.checked.Vectors[0].Ints[i]))
	case c.Type == event.JSON && value[0] == '"' && c.Code != nil:
		return w.parseJSONText(c, row, value)
	}
	return value
}

// parseJSONText returns the JSON in a string, as json.encode returns it.
func (w *computation) parseJSONText(c *Column, row int, quoted []byte) []byte {
	var text string
	err := json.Unmarshal(quoted, &text)
	value := bytes.TrimSpace([]byte(text))
	if err == nil && len(value) > 0 && json.Valid(value) {
		return value
	}
	w.rejectRow(row, event.DeadLetter{
		Stage: "column", Script: c.Code.String(),
		Error: fmt.Sprintf("column %s wants json, got the string %s: return a table, or the result of json.encode", c.Name, report.Clip(quoted)),
	})
	return nil
}

// setField appends doc to out, with the field set to value.
func setField(out, doc []byte, name string, quoted, value []byte) []byte {
	if bytes.Contains(doc, quoted) || bytes.Contains(doc, []byte(`\u`)) {
		return replaceField(out, doc, name, value)
	}
	end := bytes.LastIndexByte(doc, '}')
	body := bytes.TrimRight(doc[:end], " \t\r\n")
	out = append(out, body...)
	if body[len(body)-1] != '{' {
		out = append(out, ',')
	}
	out = append(append(append(out, quoted...), ':'), value...)
	return append(out, doc[end:]...)
}

// rawJSON is JSON text that is written unchanged.
type rawJSON []byte

// AppendJSON implements pure.Encoder.
func (r rawJSON) AppendJSON(out []byte) ([]byte, error) { return append(out, r...), nil }

// replaceField is setField for a document that may have the field already.
func replaceField(out, doc []byte, name string, value []byte) []byte {
	var d pure.Document
	err := d.Index(doc)
	if err == nil {
		err = d.Root().Put(name, pure.Value{Kind: pure.Foreign, Foreign: rawJSON(value)})
	}
	if err == nil {
		out, err = d.Root().Append(out)
	}
	if err != nil {
		panic(fmt.Sprintf("computed: a script returned an invalid document: %v", err))
	}
	return out
}
