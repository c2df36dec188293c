//go:build linux && cgo

package sqlworker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A Recompute asks for a file with other values in one column, without the rows that are
// deleted.
type Recompute struct {
	Version uint64 // of the manifest
	Table   uint32
	File    string  // its name in the manifest
	Number  uint64  // of the new segment
	Column  int32   // its ID
	Hidden  []int32 // columns that Call does not see
	// Call returns the value of each document as text that casts to the column's type, nil for
	// NULL. A document is a row, as the event was that it comes from. If the writing of the file
	// begins again, the attempt is another one. It is called once at a time.
	Call func(ctx context.Context, attempt int, documents [][]byte) ([][]byte, error) `json:"-"`
}

// Recompute writes a file again. It may have become several files, or none.
func (c *Client) Recompute(ctx context.Context, q Recompute) ([]manifest.File, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	written, err := c.write(ctx, &request{Recompute: &q})
	var files []manifest.File
	for _, w := range written {
		files = append(files, w.File)
	}
	return files, err
}

// A recomputing is a Recompute at work.
type recomputing struct {
	*Recompute
	job      *job
	attempts int
}

// recompute writes a file again.
func (w *worker) recompute(ctx context.Context, q *Recompute, in *job) error {
	m, err := w.manifests.load(q.Version)
	if err != nil {
		return err
	}
	t := m.TableByID(q.Table)
	if t == nil {
		return fmt.Errorf("no table %d", q.Table)
	}
	i := slices.IndexFunc(t.Files, func(f *manifest.File) bool { return f.Name == q.File })
	if i < 0 || t.Current().ByID(q.Column) == nil {
		return fmt.Errorf("table %s has no file %s with column %d", t.Name, q.File, q.Column)
	}
	part := 0
	files, err := w.writeFiles(ctx, t, selection{files: t.Files[i : i+1], recompute: &recomputing{Recompute: q, job: in}}, q.Number, &part)
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	written := []Written{}
	for _, f := range files {
		f.Log = t.Files[i].Log
		written = append(written, Written{t.ID, f})
	}
	if err := in.out.writeJSON(filesMessage, written); err != nil {
		return err
	}
	return in.out.writeJSON(doneMessage, outcome{})
}

// sql replaces the column in the rows of a query.
func (r *recomputing) sql(t *manifest.Table, query string, database uint64) string {
	c := t.Current().ByID(r.Column)
	return fmt.Sprintf("SELECT * REPLACE (CAST(script_value(%d, %d, %s) AS %s) AS %s) FROM (%s)",
		database, r.attempts, documentSQL(t, r.Hidden), c.SQLType(), quote(c.Name), query)
}

// documentSQL makes a JSON document of a row of the newest schema, as the event was that it
// comes from: its fields, with times in the unit in which they came. A script sees the same row
// when it is appended and when its column is recomputed.
func documentSQL(t *manifest.Table, hidden []int32) string {
	var top fields
	rest := ""
	for _, c := range shown(t.Current()) {
		switch {
		case c.Type == 0 || slices.Contains(hidden, c.ID):
		case c.ID == manifest.RestID:
			rest = quote(c.Name)
		default:
			top.add(c.Path, fieldSQL(&c))
		}
	}
	inner := top.innerSQL()
	if rest != "" { // an object that is not empty
		comma := ""
		if len(top.names) > 0 {
			comma = ","
		}
		inner = append(inner, fmt.Sprintf("coalesce(%s || substr(%s, 2, length(%[2]s) - 2), '')", literal(comma), "CAST("+rest+" AS VARCHAR)"))
	}
	return "concat('{', " + strings.Join(append(inner, "'}'"), ", ") + ")"
}

// fields are the fields of an object.
type fields struct {
	names []string
	of    []*field
}

// A field has a value, or fields of its own, or both, of which the value counts.
type field struct {
	value string // SQL of its JSON; "" is none
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

// innerSQL lists texts that make the fields' JSON, without braces.
func (f *fields) innerSQL() (texts []string) {
	for i, name := range f.names {
		key, _ := json.Marshal(name)
		comma := ""
		if i > 0 {
			comma = ","
		}
		texts = append(texts, literal(comma+string(key)+":"), f.of[i].sql())
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

// fieldSQL makes the JSON of a column's value, NULL if it has none.
func fieldSQL(c *manifest.Column) string {
	name := quote(c.Name)
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
	return "CAST(" + name + " AS VARCHAR)" // JSON as it was spelled
}

func timeFieldSQL(c *manifest.Column) string {
	name := quote(c.Name)
	switch c.Unit {
	case event.Milliseconds:
		return "CAST(epoch_ms(" + name + ") AS VARCHAR)"
	case event.Microseconds:
		return "CAST(epoch_us(" + name + ") AS VARCHAR)"
	case event.Nanoseconds:
		return "CAST(epoch_ns(" + name + ") AS VARCHAR)"
	}
	format := "%Y-%m-%dT%H:%M:%S.%fZ"
	if c.Type == event.TimestampNS {
		format = "%Y-%m-%dT%H:%M:%S.%nZ"
	}
	return "'\"' || strftime(" + name + ", " + literal(format) + ") || '\"'"
}
