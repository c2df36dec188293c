//go:build cgo

package eventstore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

// A desk is where one output's documents are turned into typed columns. It is
// kept from output to output, because its memory and its compiled extractor are
// worth more than the rest of the work.
type desk struct {
	schema    *schema
	extractor *document.Extractor
	spec      []int         // spec[i]: the column of the schema that vector i is
	columns   event.Columns // as a segment stores them: those of spec, then _rest
	rest      event.Vector  // of _rest; without rows when all is null
}

func (t *Table) desk() *desk {
	select {
	case d := <-t.desks:
		return d
	default:
		return &desk{}
	}
}

func (t *Table) release(d *desk) {
	select {
	case t.desks <- d:
	default:
	}
}

func (d *desk) use(s *schema) {
	if d.schema == s {
		return
	}
	d.schema, d.spec, d.columns = s, nil, event.Columns{}
	var spec []event.Column
	for i, c := range s.Columns {
		if c.Type != 0 {
			d.spec = append(d.spec, i)
			spec = append(spec, event.Column{Name: c.Name, Path: c.Path, Type: c.Type, Required: c.Required})
		}
	}
	d.extractor = document.NewExtractor(spec)
}

// extract fills the columns from out with the table's newest schema, which
// grows until all has its place. *Refused names rows that can't be stored.
func (d *desk) extract(t *Table, out *event.Output) error {
	for s := t.current(); ; {
		d.use(s)
		d.columns.Reset()
		report, err := d.extractor.Extract(out.Data, out.Ends, &d.columns)
		if err != nil {
			return fmt.Errorf("eventstore: extract columns: %w", err)
		}
		if refused := d.refuse(report); refused != nil {
			return refused
		}
		next := t.grow(s, report, d)
		if next != s {
			s = next
			continue
		}
		if len(report.Bad) > 0 {
			return fmt.Errorf("eventstore: no type of column holds row %d: %s", report.Bad[0].Row, report.Bad[0].Reason)
		}
		return d.collect(out, report.Unknown)
	}
}

// refuse lists documents that are none and values that do not fit a declared
// column, one entry for a row.
func (d *desk) refuse(report document.Report) error {
	var rows []RefusedRow
	for _, bad := range report.Bad {
		known := len(rows) > 0 && rows[len(rows)-1].Row == bad.Row
		if !known && (bad.Column < 0 || d.schema.Columns[d.spec[bad.Column]].Declared) {
			rows = append(rows, RefusedRow{Row: bad.Row, Reason: bad.Reason})
		}
	}
	if rows == nil {
		return nil
	}
	return &Refused{Rows: rows}
}

// collect gathers the fields that have no column of their own into _rest. It
// takes the slow way through encoding/json: a table gets here only beyond
// columnsMax columns.
func (d *desk) collect(out *event.Output, unknown []document.Field) error {
	d.rest.Null, d.rest.Bytes, d.rest.Ends = d.rest.Null[:0], d.rest.Bytes[:0], d.rest.Ends[:0]
	left := map[string]bool{}
	for _, field := range unknown {
		if field.Kinds != document.Null && d.schema.field(field.Name) < 0 {
			left[field.Name] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	for i := range out.Len() {
		before := len(d.rest.Bytes)
		var err error
		if d.rest.Bytes, err = appendFields(d.rest.Bytes, out.Doc(i), left); err != nil {
			return fmt.Errorf("eventstore: collect the fields without a column: %w", err)
		}
		null := uint8(0)
		if len(d.rest.Bytes) == before {
			null = 1
		}
		d.rest.Null = append(d.rest.Null, null)
		d.rest.Ends = append(d.rest.Ends, uint32(len(d.rest.Bytes)))
	}
	return nil
}

// appendFields appends an object of the wanted fields of doc, in their order,
// or nothing when doc has none of them.
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
