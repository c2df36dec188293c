// Package rowtext writes rows as JSON, as the sinks of a pipeline store them.
package rowtext

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/pure"
)

// AppendRow appends a row of a sink as JSON, as the sink stores it: an object of its columns, in
// their order, with null where the row has no value; or the document, if columns is nil. documents
// says that the sink also stores the fields that have no column: in the column rest, or each by
// itself if that is empty. A timestamp is a string of RFC 3339 in UTC.
func AppendRow(to []byte, columns []event.Column, documents bool, rest string, out *event.Output, row int) []byte {
	if columns == nil || out.Columns == nil {
		return append(to, out.Doc(row)...)
	}
	to = append(to, '{')
	for i := range columns {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(pure.AppendString(to, columns[i].Name), ':')
		to = AppendCell(to, columns[i].Type, &out.Columns.Vectors[i], row)
	}
	if documents {
		to = appendRest(to, columns, rest, out.Doc(row))
	}
	return append(to, '}')
}

// AppendCell appends a value of a column as JSON: null, or as AppendRow writes it.
func AppendCell(to []byte, typ event.Type, v *event.Vector, row int) []byte {
	if v.Null[row] != 0 {
		return append(to, "null"...)
	}
	switch typ {
	case event.Bool:
		return strconv.AppendBool(to, v.Ints[row] != 0)
	case event.Int32, event.Int64:
		return strconv.AppendInt(to, v.Ints[row], 10)
	case event.Float64:
		return strconv.AppendFloat(to, v.Floats[row], 'g', -1, 64)
	case event.Timestamp:
		return appendTime(to, time.UnixMicro(v.Ints[row]))
	case event.TimestampNS:
		return appendTime(to, time.Unix(0, v.Ints[row]))
	case event.Decimal, event.JSON:
		return append(to, v.Text(row)...)
	}
	return pure.AppendString(to, string(v.Text(row)))
}

func appendTime(to []byte, at time.Time) []byte {
	return append(at.UTC().AppendFormat(append(to, '"'), time.RFC3339Nano), '"')
}

// appendRest appends the fields of a document that have no column, sorted by name.
func appendRest(to []byte, columns []event.Column, rest string, doc []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil {
		return to // the extractor has accepted it
	}
	for i := range columns {
		if column := &columns[i]; len(column.Path) == 1 {
			delete(fields, column.Path[0])
		}
		delete(fields, columns[i].Name) // the column has its value
	}
	if len(fields) == 0 {
		return to
	}
	if rest != "" {
		to = append(pure.AppendString(append(to, ','), rest), ":{"...)
	}
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 || rest == "" {
			to = append(to, ',')
		}
		to = append(append(pure.AppendString(to, name), ':'), fields[name]...)
	}
	if rest != "" {
		to = append(to, '}')
	}
	return to
}
