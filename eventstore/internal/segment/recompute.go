//go:build linux && cgo

package segment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// RecomputeFile rewrites a file with new values in a column, or divided by day. DuckDB sorts
// the rows if their order changes.
func (w *Writer) RecomputeFile(t *manifest.Table, f *manifest.File, q *protocol.Recompute, database uint64) (files []manifest.File, err error) {
	rows := recomputeSQL(q, t, tablesql.File(w.settings.Folder, t, f), database)
	days := []manifest.File{{Day: f.Day, Log: f.Log, Rows: f.Rows, MinTime: f.MinTime, MaxTime: f.MaxTime}}
	divide := dividesDays(q, t)
	if divide {
		const computed = "temp.recomputed" // calls the function once per row
		if err := w.conn.Exec("CREATE TEMP TABLE " + computed + " AS " + rows); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.conn.Exec("DROP TABLE "+computed)) }()
		rows = "FROM " + computed
		if days, err = w.listDays(t, rows); err != nil {
			return nil, err
		}
	} else if f.Deleted < tablesql.LastDelete(t) {
		if err := w.countLeft(t, []*manifest.File{f}, &days[0]); err != nil {
			return nil, err
		}
	}
	zero, err := w.mayHaveNegativeZero(t, f, q.Column != 0 && t.Current().ByID(q.Column).Type == event.Float64)
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		if day.NegativeZero = zero; day.Rows == 0 {
			continue
		}
		query := rows
		if divide {
			query = "SELECT * FROM (" + query + ") WHERE " + tablesql.Day(t) + " = DATE " + sqltext.Literal(day.Day)
		}
		if order := tablesql.SortColumns(t); changesOrder(q, t, order) {
			query += " ORDER BY " + tablesql.QuotedList(order)
		}
		day.Log = f.Log
		written, err := w.writeFile(t, day, query, f.RowBytes())
		if err != nil {
			return files, err
		}
		files = append(files, written)
	}
	return files, nil
}

// dividesDays reports whether rows of one day may spread over several days.
func dividesDays(q *protocol.Recompute, t *manifest.Table) bool {
	name, _ := tablesql.TimeColumn(t)
	return q.Column == 0 || name == t.Current().ByID(q.Column).Name
}

// changesOrder reports whether rows may no longer be sorted by the given columns.
func changesOrder(q *protocol.Recompute, t *manifest.Table, order []string) bool {
	return len(order) > 0 && (q.Column == 0 || slices.Contains(order, t.Current().ByID(q.Column).Name))
}

// listDays returns a file entry for each day in the rows of a query.
func (w *Writer) listDays(t *manifest.Table, query string) (days []manifest.File, err error) {
	sql, perMicro := tablesql.Time(t)
	found, err := w.conn.Run(fmt.Sprintf("SELECT CAST(%s AS VARCHAR), count(*), min(%s), max(%[2]s) FROM (%s) GROUP BY ALL ORDER BY ALL", tablesql.Day(t), sql, query))
	for _, row := range found {
		day := manifest.File{Day: row[0].(string), Rows: row[1].(int64)}
		if least, ok := row[2].(int64); ok { // else no row has a time
			day.MinTime, day.MaxTime = tablesql.Micros(least, perMicro), tablesql.Micros(row[3].(int64), perMicro)
		}
		days = append(days, day)
	}
	return days, err
}

// recomputeSQL replaces the column in the rows of a query.
func recomputeSQL(q *protocol.Recompute, t *manifest.Table, query string, database uint64) string {
	if q.Column == 0 {
		return query
	}
	c := t.Current().ByID(q.Column)
	return fmt.Sprintf("SELECT * REPLACE (CAST(script_value(%d, %d, %s) AS %s) AS %s) FROM (%s)",
		database, q.Attempt(), tablesql.Document(t, q.Hidden), c.SQLType(), sqltext.QuoteName(c.Name), query)
}
