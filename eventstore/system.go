//go:build linux && cgo

package eventstore

import (
	"iter"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// SystemSchema is the schema of system tables.
const SystemSchema = statement.SystemSchema

// A SystemTable is a virtual table whose rows are generated when a query reads it. Its SQL
// name is perigee.NAME, and also NAME unless the store has a table of that name.
type SystemTable struct {
	Name    string
	Doc     string
	Columns []SystemColumn
	// Rows yields values that encode as JSON objects, keyed by column. It is called once
	// per query and must be safe for concurrent use.
	Rows func() iter.Seq2[any, error]
}

// A SystemColumn is a column of a system table.
type SystemColumn struct {
	ColumnInfo
	Doc string
}

// SystemColumns derives columns from a struct's fields: the name from the JSON key, the SQL
// type from the tag sql, the description from the tag doc.
func SystemColumns(row any) (columns []SystemColumn) {
	t := reflect.TypeOf(row)
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		columns = append(columns, SystemColumn{ColumnInfo{Name: name, Type: tag.Get("sql")}, tag.Get("doc")})
	}
	return columns
}

// SystemTables describes the built-in system tables, without Rows.
func SystemTables() []SystemTable { return new(Store).ownTables() }

// NamesTable reports whether a statement may read the named table. It looks for the name as a
// word anywhere in the SQL.
func NamesTable(sql, name string) bool {
	for word := range strings.FieldsFuncSeq(strings.ToLower(sql), func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80
	}) {
		if word == strings.ToLower(name) {
			return true
		}
	}
	return false
}

// systemTables returns the system tables that a query may read.
func (s *Store) systemTables(sql string) (named []sqlclient.External) {
	for _, t := range append(slices.Clone(s.options.System), s.ownTables()...) {
		hidden := s.tableNamed(t.Name) != nil && !NamesTable(sql, SystemSchema)
		if hidden || !NamesTable(sql, t.Name) {
			continue
		}
		e := sqlclient.External{Name: t.Name, Rows: t.Rows()}
		for _, c := range t.Columns {
			e.Columns = append(e.Columns, c.ColumnInfo)
		}
		named = append(named, e)
	}
	return named
}

// warnIfHidden logs a warning if a new table has the name of a system table.
func (s *Store) warnIfHidden(table string) {
	for _, t := range append(slices.Clone(s.options.System), s.ownTables()...) {
		if strings.EqualFold(t.Name, table) {
			s.options.Log.Warn("a table has the name of a system table, which queries now call "+SystemSchema+"."+t.Name, "table", table)
		}
	}
}

// ownTables returns the built-in system tables.
func (s *Store) ownTables() []SystemTable {
	return []SystemTable{
		{Name: "segments", Columns: SystemColumns(segmentRow{}), Rows: s.segmentRows,
			Doc: "What the tables consist of: a row for each Parquet file, and for each file of the log that has rows which are not in Parquet files yet."},
		{Name: "workers", Columns: SystemColumns(workerRow{}), Rows: s.workerRows,
			Doc: "The processes `sql-worker` that run for the event store."},
		{Name: queriesTable, Columns: SystemColumns(QueryInfo{}), Rows: s.queryRows,
			Doc: "The statements that run or wait and the tails, as SHOW QUERIES lists them."},
	}
}

// A segmentRow is a row of the system table segments.
type segmentRow struct {
	Table   string     `json:"table_name" sql:"VARCHAR" doc:"the table whose rows they are"`
	Kind    string     `json:"kind" sql:"VARCHAR" doc:"parquet or log"`
	File    string     `json:"file" sql:"VARCHAR" doc:"path in the folder of the event store"`
	Segment *uint64    `json:"segment,omitempty" sql:"UBIGINT" doc:"number of the segment that the file belongs to; null in the log"`
	Day     string     `json:"day,omitempty" sql:"DATE" doc:"day of event time, in UTC; null in the log, and if the table has no time column"`
	Rows    int64      `json:"rows" sql:"BIGINT" doc:"rows in it, with those of deletes under way"`
	Bytes   int64      `json:"bytes" sql:"BIGINT" doc:"bytes in the file; of a file of the log, those that are the table's"`
	Oldest  *time.Time `json:"oldest,omitempty" sql:"TIMESTAMP" doc:"least event time; null if the table has no time column"`
	Newest  *time.Time `json:"newest,omitempty" sql:"TIMESTAMP" doc:"greatest event time"`
	Schema  *uint64    `json:"schema_version,omitempty" sql:"UBIGINT" doc:"version of the table's schema; null in the log, which has several"`
	Bloom   bool       `json:"bloom" sql:"BOOLEAN" doc:"it has a bloom filter"`
	// Recomputing is null once all recomputes of the file are done.
	Recomputing string `json:"recomputing,omitempty" sql:"VARCHAR" doc:"the computed column whose values a recompute has yet to fill here, of several the first; null in the log"`
}

// segmentRows yields the rows of the system table segments.
func (s *Store) segmentRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		snapshot := s.snapshot()
		defer snapshot.release()
		for _, t := range snapshot.manifest.Tables {
			for _, f := range t.Files {
				row := segmentRow{
					Table: t.Name, Kind: "parquet", File: path.Join("tables", t.DirName(), f.Name), Segment: &f.Segment, Day: f.Day,
					Rows: f.Rows, Bytes: f.Bytes, Schema: &f.Schema, Bloom: f.Bloom != "",
				}
				row.addTimes(t, f.MinTime, f.MaxTime)
				if r := t.NextRecompute(f); r != nil {
					row.Recomputing = t.Current().ByID(r.Column).Name
				}
				if !yield(row, nil) {
					return
				}
			}
		}
		for _, end := range snapshot.ends {
			rows, err := s.logSegments(snapshot.manifest, end)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// logSegments returns a row for each table that has rows in a log file.
func (s *Store) logSegments(m *manifest.Manifest, end wal.FileEnd) (rows []*segmentRow, err error) {
	if end.Number < m.LogStart {
		return nil, nil
	}
	byTable := map[uint32]*segmentRow{}
	name := path.Join("log", path.Base(wal.Path("log", end.Number)))
	err = readLogFile(manifest.LogFolder(s.folder), end, func(e *wal.Entry, size int64) {
		t := m.TableByID(e.Table)
		if t == nil || e.Kind != wal.Rows || e.Columns == nil || e.Columns.Rows == 0 {
			return
		}
		row := byTable[e.Table]
		if row == nil {
			row = &segmentRow{Table: t.Name, Kind: "log", File: name}
			byTable[e.Table], rows = row, append(rows, row)
		}
		row.Rows += int64(e.Columns.Rows)
		row.Bytes += size
		row.addTimes(t, e.MinTime, e.MaxTime)
	})
	return rows, err
}

// addTimes widens the time range of a row to include least and greatest, in microseconds.
func (r *segmentRow) addTimes(t *manifest.Table, least, greatest int64) {
	if t.Time == "" {
		return
	}
	oldest, newest := time.UnixMicro(least).UTC(), time.UnixMicro(greatest).UTC()
	if r.Oldest == nil || oldest.Before(*r.Oldest) {
		r.Oldest = &oldest
	}
	if r.Newest == nil || newest.After(*r.Newest) {
		r.Newest = &newest
	}
}

// A workerRow is a row of the system table workers.
type workerRow struct {
	PID      int       `json:"pid" sql:"BIGINT" doc:"number of the process"`
	Role     string    `json:"role" sql:"VARCHAR" doc:"query: it answers queries; seal: it writes closed files of the log as Parquet files; merge: it merges and rewrites those"`
	State    string    `json:"state" sql:"VARCHAR" doc:"running, or retired: it gets no more requests and ends with those it has"`
	Started  time.Time `json:"started" sql:"TIMESTAMP" doc:"when it was started"`
	Memory   int64     `json:"memory" sql:"BIGINT" doc:"bytes of memory that it has for itself"`
	Limit    int64     `json:"memory_limit" sql:"BIGINT" doc:"bytes that all its requests together may need"`
	Requests int       `json:"requests" sql:"BIGINT" doc:"requests that it works on now, with the query that asks"`
	Taken    int       `json:"requests_total" sql:"BIGINT" doc:"requests since it was started"`
}

// workerRows yields the rows of the system table workers.
func (s *Store) workerRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, w := range s.worker.Workers() {
			row := workerRow{
				PID: w.PID, Role: w.Role, State: "running", Started: w.Started.UTC().Truncate(time.Microsecond),
				Memory: w.Memory, Limit: w.Limit, Requests: w.Requests, Taken: w.Taken,
			}
			if w.Retired {
				row.State = "retired"
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// queryRows yields the rows of the system table queries.
func (s *Store) queryRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, q := range s.Queries() {
			if !yield(q, nil) {
				return
			}
		}
	}
}
