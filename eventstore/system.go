//go:build linux && cgo

package eventstore

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/systemtable"
)

// SystemTables describes the built-in system tables, without Rows.
func SystemTables() []systemtable.Table { return new(Store).ownTables() }

// systemTables returns the system tables that a query may read.
func (s *Store) systemTables(sql string) (named []sqlclient.External) {
	for _, t := range append(slices.Clone(s.options.System), s.ownTables()...) {
		hidden := s.tableNamed(t.Name) != nil && !systemtable.IsNamed(sql, systemtable.Schema)
		if hidden || !systemtable.IsNamed(sql, t.Name) {
			continue
		}
		e := sqlclient.External{Name: t.Name, Rows: t.Rows()}
		for _, c := range t.Columns {
			e.Columns = append(e.Columns, catalog.Column{Name: c.Name, Type: c.Type})
		}
		named = append(named, e)
	}
	return named
}

// warnIfHidden logs a warning if a new table has the name of a system table.
func (s *Store) warnIfHidden(table string) {
	for _, t := range append(slices.Clone(s.options.System), s.ownTables()...) {
		if strings.EqualFold(t.Name, table) {
			s.options.Log.Warn("a table has the name of a system table, which queries now call "+systemtable.Schema+"."+t.Name, "table", table)
		}
	}
}

// ownTables returns the built-in system tables.
func (s *Store) ownTables() []systemtable.Table {
	return []systemtable.Table{
		{Name: "segments", Columns: systemtable.Columns(systemtable.Segment{}), Rows: s.segmentRows,
			Doc: "The files of the tables: a row for each Parquet file, and for each file of the log with rows that are not in Parquet files yet."},
		{Name: "lakes", Columns: systemtable.Columns(catalog.LakeState{}), Rows: s.lakeRows,
			Doc: "How far tables with the key `lake` are published: a row for each."},
		{Name: "workers", Columns: systemtable.Columns(systemtable.Worker{}), Rows: s.workerRows,
			Doc: "The processes `sql-worker` that run for the event store."},
		{Name: queriesTable, Columns: systemtable.Columns(QueryInfo{}), Rows: s.queryRows,
			Doc: "The statements that run or wait and the tails, as SHOW QUERIES lists them."},
		{Name: "slow_queries", Columns: systemtable.Columns(SlowQuery{}), Rows: s.slowQueryRows,
			Doc: "The last 200 statements that took longer than `slow` below `query` in the configuration, since the engine was started. The log has them too."},
	}
}

// segmentRows yields the rows of the system table segments.
func (s *Store) segmentRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		snapshot := s.snapshot()
		defer snapshot.release()
		systemtable.Segments(s.folder, snapshot.manifest, snapshot.ends, yield)
	}
}

// lakeRows yields the rows of the system table lakes.
func (s *Store) lakeRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, state := range s.LakeStates() {
			if !yield(state, nil) {
				return
			}
		}
	}
}

// workerRows yields the rows of the system table workers.
func (s *Store) workerRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, w := range s.worker.Workers() {
			row := systemtable.Worker{
				PID: w.PID, Role: w.Role, State: "running", Started: w.Started.UTC().Truncate(time.Microsecond),
				Memory: w.Memory, Limit: w.Limit, Requests: w.Requests, RequestsTotal: w.RequestsTotal,
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
