package tablesql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// Document returns SQL that converts a row of the newest schema to the JSON document of
// its event. A script thus sees the same row on append and on recompute. The exception is
// times in a unit that also accepts text: their original form is lost.
func Document(t *manifest.Table, hidden []int32) string {
	var top fields
	rest := ""
	for _, c := range Shown(t.Current()) {
		switch {
		case c.Type == 0 || slices.Contains(hidden, c.ID):
		case c.ID == manifest.RestID:
			rest = sqltext.QuoteName(c.Name)
		default:
			top.add(c.Path, fieldSQL(&c))
		}
	}
	inner := top.innerSQL()
	if rest != "" { // a non-empty object
		comma := ""
		if len(top.names) > 0 {
			comma = ","
		}
		inner = append(inner, fmt.Sprintf("coalesce(%s || substr(%s, 2, length(%[2]s) - 2), '')", sqltext.Literal(comma), "CAST("+rest+" AS VARCHAR)"))
	}
	return "concat('{', " + strings.Join(append(inner, "'}'"), ", ") + ")"
}

// fields are the fields of an object.
type fields struct {
	names []string
	of    []*field
}

// A field has a value, or fields of its own, or both; then the value takes precedence.
type field struct {
	value string // SQL of its JSON; "" without one
	fields
}

func (f *fields) add(path []string, value string) {
	i := slices.Index(f.names, path[0])
	if i < 0 {
		i = len(f.names)
		f.names, f.of = append(f.names, path[0]), append(f.of, &field{})
	}
	if len(path) > 1 {
		f.of[i].add(path[1:], value)
	} else {
		f.of[i].value = value
	}
}

// innerSQL returns SQL texts that concatenate to the fields' JSON, without braces.
func (f *fields) innerSQL() (texts []string) {
	for i, name := range f.names {
		key, _ := json.Marshal(name)
		comma := ""
		if i > 0 {
			comma = ","
		}
		texts = append(texts, sqltext.Literal(comma+string(key)+":"), f.of[i].sql())
	}
	return texts
}

func (f *field) sql() string {
	var values []string
	if f.value != "" {
		values = append(values, f.value)
	}
	if len(f.names) > 0 {
		values = append(values, "concat('{', "+strings.Join(append(f.innerSQL(), "'}'"), ", ")+")")
	} else {
		values = append(values, "'null'")
	}
	return "coalesce(" + strings.Join(values, ", ") + ")"
}

// fieldSQL returns SQL for the JSON of a column's value, or NULL without one.
func fieldSQL(c *manifest.Column) string {
	name := sqltext.QuoteName(c.Name)
	switch c.Type {
	case event.String:
		return "CAST(to_json(" + name + ") AS VARCHAR)"
	case event.Float64:
		return "CASE WHEN isfinite(" + name + ") THEN CAST(" + name + " AS VARCHAR) END"
	case event.Bytes:
		return "'\"' || base64(" + name + ") || '\"'"
	case event.Timestamp, event.TimestampNS:
		return timeFieldSQL(c)
	}
	return "CAST(" + name + " AS VARCHAR)" // JSON as stored
}

func timeFieldSQL(c *manifest.Column) string {
	name := sqltext.QuoteName(c.Name)
	switch c.Unit {
	case event.Milliseconds:
		return "CAST(epoch_ms(" + name + ") AS VARCHAR)"
	case event.Microseconds:
		return "CAST(epoch_us(" + name + ") AS VARCHAR)"
	case event.Nanoseconds:
		if c.Type == event.Timestamp { // epoch_ns fails after 2262
			return "CAST(CAST(epoch_us(" + name + ") AS HUGEINT) * 1000 AS VARCHAR)"
		}
		return "CAST(epoch_ns(" + name + ") AS VARCHAR)"
	}
	if c.Type == event.TimestampNS { // strftime of DuckDB 1.5 drops the text after %n
		return "'\"' || strftime(" + name + ", '%Y-%m-%dT%H:%M:%S.') || strftime(" + name + ", '%n') || 'Z\"'"
	}
	return "'\"' || strftime(" + name + ", '%Y-%m-%dT%H:%M:%S.%fZ') || '\"'"
}
