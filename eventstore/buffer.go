//go:build linux && cgo

package eventstore

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/document"
)

// A buffer holds the typed columns of one output's documents. Buffers are reused across
// outputs: allocating their memory and compiling their extractor costs more than the rest of
// the work.
type buffer struct {
	schema    *schema
	extractor *document.Extractor
	spec      []int          // spec[i]: the schema column of vector i
	stored    []event.Column // spec[i] in the log's type
	columns   event.Columns  // typed by spec
	rest      event.Vector   // values of _rest; no rows if all are null
	ids       []int32        // IDs of the columns, then of _rest
	frame     []byte
	computed  [2]event.Result // results of computed columns, used alternately
}

func (b *buffer) useSchema(s *schema) {
	if b.schema == s {
		return
	}
	b.schema, b.spec, b.stored, b.ids, b.columns = s, nil, nil, nil, event.Columns{}
	var extracted []event.Column
	for i, c := range s.Columns {
		if c.Type != 0 {
			b.spec, b.ids = append(b.spec, i), append(b.ids, c.ID)
			stored := event.Column{Name: c.Name, Path: c.Path, Type: c.Type, Unit: c.Unit, Digits: c.Digits, Required: c.Required}
			b.stored, extracted = append(b.stored, stored), append(extracted, stored)
			if c.Type == event.Bytes { // base64 in documents
				extracted[len(extracted)-1].Type = event.String
			}
		}
	}
	b.ids = append(b.ids, manifest.RestID)
	b.extractor = document.NewExtractor(extracted)
	if s.unknown != catalog.DropUnknown {
		b.extractor.ReportUnknown()
	}
}

// extract fills the columns from out with the table's newest schema. It widens the schema
// until every field has a column. It returns *RejectedRows for rows that cannot be stored.
func (b *buffer) extract(t *Table, out *event.Output) error {
	for s := t.current(); ; {
		b.useSchema(s)
		b.columns.Reset()
		report, err := b.extractor.Extract(out.Data, out.Ends, &b.columns)
		if err != nil {
			return fmt.Errorf("eventstore: extract columns: %w", err)
		}
		b.columns.Spec = b.stored
		b.checkValues(&report)
		if rejected := b.rejectedRows(report); rejected != nil {
			return rejected
		}
		next := t.growSchema(s, report, b)
		if next != s {
			s = next
			continue
		}
		if len(report.Rejected) > 0 {
			return fmt.Errorf("eventstore: no column type holds row %d: %s", report.Rejected[0].Row, report.Rejected[0].Reason)
		}
		return b.collectRest(out, report.Unknown)
	}
}

// checkValues decodes the bytes columns. It adds to the report the faults that the extractor
// does not check: text that is not base64, and decimals with more digits than their column
// has.
func (b *buffer) checkValues(report *document.Report) {
	before := len(report.Rejected)
	for i, at := range b.spec {
		c, v := &b.schema.Columns[at], &b.columns.Vectors[i]
		switch {
		case c.Type == event.Bytes:
			decodeBase64(v, func(row int, text []byte) {
				report.Rejected = append(report.Rejected, document.Rejected{Row: row, Column: i, Kind: document.String,
					Reason: fmt.Sprintf("column %s wants bytes in base64, got %.60q", c.Name, text)})
			})
		case c.Digits != (event.Digits{}):
			for row := range b.columns.Rows {
				if text := v.Text(row); v.Null[row] == 0 && !c.Digits.Holds(text) {
					report.Rejected = append(report.Rejected, document.Rejected{Row: row, Column: i, Kind: document.Float,
						Reason: fmt.Sprintf("column %s: %s does not fit decimal%s", c.Name, text, c.Digits)})
				}
			}
		}
	}
	if len(report.Rejected) > before {
		slices.SortStableFunc(report.Rejected, func(x, y document.Rejected) int { return x.Row - y.Row })
	}
}

// decodeBase64 decodes the values of a vector in place. It reports those that are not base64.
func decodeBase64(v *event.Vector, reject func(row int, text []byte)) {
	end := uint32(0)
	begin := uint32(0)
	for row, next := range v.Ends {
		text := v.Bytes[begin:next]
		n, err := base64.StdEncoding.Decode(v.Bytes[end:], text) // n never overtakes the text that is read
		if err != nil {
			reject(row, text)
			n = 0
		}
		begin, end = next, end+uint32(n)
		v.Ends[row] = end
	}
	v.Bytes = v.Bytes[:end]
}

// rejectedRows lists documents that are not objects and values that do not fit a declared
// column, one entry per row. It returns nil if there are none.
func (b *buffer) rejectedRows(report document.Report) error {
	var rows []catalog.RejectedRow
	for _, bad := range report.Rejected {
		if len(rows) > 0 && rows[len(rows)-1].Row == bad.Row {
			continue
		}
		if bad.Column < 0 {
			rows = append(rows, catalog.RejectedRow{Row: bad.Row, Reason: bad.Reason})
		} else if c := &b.schema.Columns[b.spec[bad.Column]]; c.Declared {
			rows = append(rows, catalog.RejectedRow{Row: bad.Row, Column: c.Name, Reason: bad.Reason})
		}
	}
	if rows == nil {
		return nil
	}
	return &RejectedRows{Rows: rows}
}

// collectRest gathers the fields without a column into _rest. It uses encoding/json, which is
// slow.
func (b *buffer) collectRest(out *event.Output, unknown []document.Field) error {
	b.rest.Null, b.rest.Bytes, b.rest.Ends = b.rest.Null[:0], b.rest.Bytes[:0], b.rest.Ends[:0]
	left := map[string]bool{}
	for _, field := range unknown {
		if field.Kinds != document.Null && b.schema.field(field.Name) < 0 {
			left[field.Name] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	for i := range out.Len() {
		before := len(b.rest.Bytes)
		var err error
		if b.rest.Bytes, err = appendFields(b.rest.Bytes, out.Doc(i), left); err != nil {
			return fmt.Errorf("eventstore: collect the fields without a column: %w", err)
		}
		null := uint8(0)
		if len(b.rest.Bytes) == before {
			null = 1
		}
		b.rest.Null = append(b.rest.Null, null)
		b.rest.Ends = append(b.rest.Ends, uint32(len(b.rest.Bytes)))
	}
	return nil
}

// appendFields appends an object of the wanted fields of doc, in document order. It appends
// nothing if doc has none of them.
func appendFields(dst, doc []byte, wanted map[string]bool) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(doc))
	if _, err := decoder.Token(); err != nil {
		return dst, err
	}
	separator := byte('{')
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return dst, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return dst, err
		}
		if !wanted[key.(string)] {
			continue
		}
		name, err := json.Marshal(key)
		if err != nil {
			return dst, err
		}
		dst = append(append(append(append(dst, separator), name...), ':'), value...)
		separator = ','
	}
	if separator == ',' {
		dst = append(dst, '}')
	}
	return dst, nil
}

// encode returns the log frame of an extracted output: its range and the given rows. The
// buffer owns the memory.
func (b *buffer) encode(p *Partition, of event.Range, rows rowRuns, now time.Time) []byte {
	entry := wal.Entry{
		Kind: wal.Rows, Table: p.table.id, Schema: b.schema.Version, Appended: now.UnixMicro(),
		Pipeline: p.key.pipeline, Partition: p.key.partition, Range: of,
	}
	columns := b.frameColumns()
	if rows.count() < columns.Rows {
		columns = selectRows(columns, rows)
	}
	if columns.Rows > 0 {
		entry.Columns, entry.IDs = columns, b.ids[:len(columns.Vectors)]
		entry.MinTime, entry.MaxTime = b.timeBounds(b.schema.time, columns)
	}
	b.frame = wal.AppendEntry(b.frame[:0], &entry)
	return b.frame
}

// frameColumns returns the columns, followed by _rest if a row has a value there.
func (b *buffer) frameColumns() *event.Columns {
	if len(b.rest.Null) == 0 {
		return &b.columns
	}
	return &event.Columns{
		Spec:    append(slices.Clip(b.columns.Spec), event.Column{Name: catalog.RestColumn, Type: event.JSON}),
		Rows:    b.columns.Rows,
		Vectors: append(slices.Clip(b.columns.Vectors), b.rest),
	}
}

// microsOf converts nanoseconds to microseconds, rounding down.
func microsOf(nanos int64) int64 { return time.Unix(0, nanos).UnixMicro() }

// timeBounds returns the minimum and maximum event time in microseconds, or zeros without a
// time column. A time column has no nulls.
func (b *buffer) timeBounds(timeColumn string, columns *event.Columns) (least, greatest int64) {
	for i, c := range columns.Spec {
		if timeColumn != "" && c.Name == timeColumn {
			least, greatest = slices.Min(columns.Vectors[i].Ints), slices.Max(columns.Vectors[i].Ints)
			if c.Type == event.TimestampNS {
				least, greatest = microsOf(least), microsOf(greatest)
			}
			return least, greatest
		}
	}
	return 0, 0
}

// selectRows copies the given rows of columns.
func selectRows(columns *event.Columns, rows rowRuns) *event.Columns {
	selected := &event.Columns{Spec: columns.Spec, Rows: rows.count(), Vectors: make([]event.Vector, len(columns.Vectors))}
	for _, run := range rows {
		for i := range columns.Vectors {
			appendRows(&selected.Vectors[i], &columns.Vectors[i], run.first, run.end)
		}
	}
	return selected
}

// appendRows appends rows [first, end) of from to to.
func appendRows(to, from *event.Vector, first, end int) {
	to.Null = append(to.Null, from.Null[first:end]...)
	if len(from.Ints) > 0 {
		to.Ints = append(to.Ints, from.Ints[first:end]...)
	}
	if len(from.Floats) > 0 {
		to.Floats = append(to.Floats, from.Floats[first:end]...)
	}
	if len(from.Ends) == 0 {
		return
	}
	begin := uint32(0)
	if first > 0 {
		begin = from.Ends[first-1]
	}
	shift := uint32(len(to.Bytes)) - begin
	to.Bytes = append(to.Bytes, from.Bytes[begin:from.Ends[end-1]]...)
	for _, e := range from.Ends[first:end] {
		to.Ends = append(to.Ends, e+shift)
	}
}
