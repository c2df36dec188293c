//go:build linux && cgo

package sqlworker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// Recompute rewrites a file. The result is any number of files, possibly none.
func (c *Client) Recompute(ctx context.Context, q protocol.Recompute) (files []manifest.File, err error) {
	err = c.write(ctx, &protocol.Request{Recompute: &q}, q.Wide, &files)
	if errors.Is(err, protocol.ErrMemory) && !q.Wide {
		q.Wide = true
		return c.Recompute(ctx, q)
	}
	return files, err
}

// recompute rewrites a file.
func (w *worker) recompute(ctx context.Context, q *protocol.Recompute, in *job) error {
	t, err := w.table(q.Version, q.Table)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(t.Files, func(f *manifest.File) bool { return f.Name == q.File })
	if i < 0 || q.Column != 0 && t.Current().ByID(q.Column) == nil {
		return fmt.Errorf("table %s has no file %s with column %d", t.Name, q.File, q.Column)
	}
	s, err := w.newWriteSession(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	setScriptCaller(s.database.number, &scriptCaller{ctx: ctx, job: in})
	defer setScriptCaller(s.database.number, nil)
	out := newOutput(q.Number, q.Wide)
	files, err := s.recomputeFile(t, t.Files[i], q, out)
	if err != nil {
		return errors.Join(fmt.Errorf("table %s: %w", t.Name, s.explainWrite(err)), out.abandon())
	}
	if err := out.wait(); err != nil {
		return errors.Join(err, out.abandon())
	}
	if err := in.out.WriteJSON(protocol.FilesMessage, files); err != nil {
		return err
	}
	return in.out.WriteJSON(protocol.DoneMessage, protocol.Outcome{})
}

// recomputeFile rewrites a file with new values in a column, or divided by day. DuckDB sorts
// the rows if their order changes.
func (s *session) recomputeFile(t *manifest.Table, f *manifest.File, q *protocol.Recompute, out *output) (files []manifest.File, err error) {
	rows := recomputeSQL(q, t, fileSQL(s.worker.settings.Folder, t, f), s.database.number)
	days := []manifest.File{{Day: f.Day, Log: f.Log, Rows: f.Rows, MinTime: f.MinTime, MaxTime: f.MaxTime}}
	divide := dividesDays(q, t)
	if divide {
		const computed = "temp.recomputed" // calls the function once per row
		if err := s.conn.Exec("CREATE TEMP TABLE " + computed + " AS " + rows); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.conn.Exec("DROP TABLE "+computed)) }()
		rows = "FROM " + computed
		if days, err = s.listDays(t, rows); err != nil {
			return nil, err
		}
	} else if f.Deleted < lastDelete(t) {
		if err := s.countLeft(t, []*manifest.File{f}, &days[0]); err != nil {
			return nil, err
		}
	}
	zero, err := s.mayHaveNegativeZero(t, f, q.Column != 0 && t.Current().ByID(q.Column).Type == event.Float64)
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		if day.NegativeZero = zero; day.Rows == 0 {
			continue
		}
		query := rows
		if divide {
			query = "SELECT * FROM (" + query + ") WHERE " + daySQL(t) + " = DATE " + sqltext.Literal(day.Day)
		}
		if order := sortColumns(t); changesOrder(q, t, order) {
			query += " ORDER BY " + quotedList(order)
		}
		day.Log = f.Log
		written, err := s.writeFile(t, day, query, f.RowBytes(), out)
		if err != nil {
			return files, err
		}
		files = append(files, written)
	}
	return files, nil
}

// dividesDays reports whether rows of one day may spread over several days.
func dividesDays(q *protocol.Recompute, t *manifest.Table) bool {
	name, _ := timeColumn(t)
	return q.Column == 0 || name == t.Current().ByID(q.Column).Name
}

// changesOrder reports whether rows may no longer be sorted by the given columns.
func changesOrder(q *protocol.Recompute, t *manifest.Table, order []string) bool {
	return len(order) > 0 && (q.Column == 0 || slices.Contains(order, t.Current().ByID(q.Column).Name))
}

// listDays returns a file entry for each day in the rows of a query.
func (s *session) listDays(t *manifest.Table, query string) (days []manifest.File, err error) {
	sql, perMicro := timeSQL(t)
	found, err := s.conn.Run(fmt.Sprintf("SELECT CAST(%s AS VARCHAR), count(*), min(%s), max(%[2]s) FROM (%s) GROUP BY ALL ORDER BY ALL", daySQL(t), sql, query))
	for _, row := range found {
		day := manifest.File{Day: row[0].(string), Rows: row[1].(int64)}
		if least, ok := row[2].(int64); ok { // else no row has a time
			day.MinTime, day.MaxTime = microsOf(least, perMicro), microsOf(row[3].(int64), perMicro)
		}
		days = append(days, day)
	}
	return days, err
}

// daySQL returns SQL for the day of a row, equivalent to dayOf.
func daySQL(t *manifest.Table) string {
	sql, perMicro := timeSQL(t)
	perDay := perMicro * dayMicros
	return fmt.Sprintf("coalesce(DATE '1970-01-01' + CAST((%[1]s // %[2]d - CAST(%[1]s %% %[2]d < 0 AS BIGINT)) AS INTEGER), DATE '1970-01-01')", sql, perDay)
}

// recomputeSQL replaces the column in the rows of a query.
func recomputeSQL(q *protocol.Recompute, t *manifest.Table, query string, database uint64) string {
	if q.Column == 0 {
		return query
	}
	c := t.Current().ByID(q.Column)
	return fmt.Sprintf("SELECT * REPLACE (CAST(script_value(%d, %d, %s) AS %s) AS %s) FROM (%s)",
		database, q.Attempt(), documentSQL(t, q.Hidden), c.SQLType(), sqltext.QuoteName(c.Name), query)
}

// documentSQL returns SQL that converts a row of the newest schema to the JSON document of
// its event. A script thus sees the same row on append and on recompute. The exception is
// times in a unit that also accepts text: their original form is lost.
func documentSQL(t *manifest.Table, hidden []int32) string {
	var top fields
	rest := ""
	for _, c := range shown(t.Current()) {
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
		return "CAST(epoch_ns(" + name + ") AS VARCHAR)"
	}
	if c.Type == event.TimestampNS { // strftime of DuckDB 1.5 drops the text after %n
		return "'\"' || strftime(" + name + ", '%Y-%m-%dT%H:%M:%S.') || strftime(" + name + ", '%n') || 'Z\"'"
	}
	return "'\"' || strftime(" + name + ", '%Y-%m-%dT%H:%M:%S.%fZ') || '\"'"
}
