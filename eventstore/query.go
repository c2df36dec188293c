//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"sync"

	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
)

// RunWorker answers queries and writes files if this process was started to do so, and then
// does not return. A program that opens a Store calls it first in main: the store starts the
// program again for its workers.
func RunWorker() { sqlworker.Run() }

// Beside nil, bool, int64, uint64, float32, float64, string, []byte and
// time.Time, the values of a row are of these types; lists are []any.
type (
	Number = sqlworker.Number // a number too wide for Go's own: DECIMAL, HUGEINT
	JSON   = sqlworker.JSON   // a JSON value as it is stored
	Struct = sqlworker.Struct // a struct or a map, in its own order
	Field  = sqlworker.Field  // one entry of a Struct
)

// A FunctionGroup is functions that a query may call.
type FunctionGroup = sqlworker.FunctionGroup

// Functions returns the functions that a query may call.
func Functions() []FunctionGroup { return sqlworker.Functions() }

// newWorker prepares the processes that run DuckDB. None starts before it is needed.
func newWorker(folder string, o *Options) *sqlworker.Client {
	return sqlworker.New(sqlworker.Options{
		Folder: folder, Memory: max(o.Memory, memoryDefault) + workerMemory, Threads: o.Threads, Queries: o.Queries, Log: o.Log,
	})
}

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE,
// SHOW, SUMMARIZE or EXPLAIN. The SQL sees the store and nothing else: no file,
// no network, no setting, nothing that writes. It reads what was committed when
// it began. *QueryError says what is wrong with it.
//
// At most Options.Queries run at the same time; others wait. The Rows must be
// closed; until then ctx ends the query, and so does Options.QueryTime.
func (s *Store) Query(ctx context.Context, sql string) (*Rows, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, ErrClosed
	}
	r, err := s.startQuery(ctx, sql)
	if err != nil {
		<-s.slots
		return nil, err
	}
	return r, nil
}

func (s *Store) startQuery(ctx context.Context, sql string) (*Rows, error) {
	ctx, cancel := s.untilClosed(ctx)
	snapshot := s.snapshot()
	result, err := s.worker.Query(ctx, sqlworker.Query{
		Version: snapshot.manifest.Version, Ends: snapshot.ends, SQL: sql, External: s.externalTables(sql),
		Limits: sqlworker.Limits{Time: cmp.Or(s.options.QueryTime, queryTimeDefault), Memory: cmp.Or(s.options.Memory, memoryDefault)},
	})
	if err != nil {
		if cause := context.Cause(ctx); cause == ErrClosed {
			err = cause
		}
		snapshot.release()
		cancel()
		return nil, err
	}
	return &Rows{result: result, end: func() {
		result.Close()
		snapshot.release()
		cancel()
		<-s.slots
	}}, nil
}

// Rows is the result of a query. It is for one goroutine at a time.
type Rows struct {
	result *sqlworker.Rows
	end    func()
	once   sync.Once
}

// Columns describes the columns.
func (r *Rows) Columns() []ColumnInfo { return r.result.Columns() }

// Next goes to the next row and reports whether there is one.
func (r *Rows) Next() bool { return r.result.Next() }

// Row returns the row that Next went to. It belongs to the caller.
func (r *Rows) Row() []any { return r.result.Row() }

// Err says why Next returned false; nil at the end of the result.
func (r *Rows) Err() error { return r.result.Err() }

// Close ends the query.
func (r *Rows) Close() error {
	r.once.Do(r.end)
	return nil
}
