//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
)

// RunWorker answers queries and writes files if this process was started to do so, and then
// does not return. A program that opens a Store calls it first in main: the store starts the
// program again for its workers.
func RunWorker() { sqlworker.Run() }

// Beside nil, bool, int64, uint64, float32, float64, string, []byte and
// time.Time, the values of a row are of these types; lists are []any.
type (
	Number = protocol.Number // a number too wide for Go's own: DECIMAL, HUGEINT
	JSON   = protocol.JSON   // a JSON value as it is stored
	Struct = protocol.Struct // a struct or a map, in its own order
	Field  = protocol.Field  // one entry of a Struct
)

// A FunctionGroup is functions that a query may call.
type FunctionGroup = statement.FunctionGroup

// Functions returns the functions that a query may call.
func Functions() []FunctionGroup { return statement.Functions() }

// A Macro is a function of SQL that is written in SQL.
type Macro = statement.Macro

// Macros lists the macros that a query may call.
func Macros() []Macro { return statement.Macros() }

// newWorker prepares the processes that run DuckDB. None starts before it is needed.
func newWorker(folder string, o *Options) *sqlworker.Client {
	return sqlworker.New(sqlworker.Options{
		Folder: folder, Memory: cmp.Or(o.Memory, memoryDefault) + writersMemory, Threads: o.Threads, Log: o.Log,
	})
}

// A Param is the value of a parameter of a statement: $1 or ? by its place, $name by its
// name. Values are nil, bool, int, int64, float64, string, []byte, time.Time and TimestampNS.
type Param = protocol.Param

// A TimestampNS is the value of a parameter of type TIMESTAMP_NS: nanoseconds since 1970. A
// time.Time is of type TIMESTAMP, in microseconds.
type TimestampNS = protocol.TimestampNS

// A Format is how a result is written. The zero Format gives rows to Rows.Next.
type Format = protocol.Format

// The formats, which protocol describes.
const (
	FormatTable   = protocol.FormatTable
	FormatJSON    = protocol.FormatJSON
	FormatNDJSON  = protocol.FormatNDJSON
	FormatCSV     = protocol.FormatCSV
	FormatArrow   = protocol.FormatArrow
	FormatParquet = protocol.FormatParquet
)

// Formats lists the formats.
func Formats() []Format { return protocol.Formats() }

// Text spells a value of a row for people; nil is "".
func Text(value any) string { return protocol.Text(value) }

// Limits bound a statement. Zero fields are those of Options, and no limit of rows.
type Limits = protocol.Limits

// A Statement is SQL to execute.
type Statement struct {
	SQL    string
	Params []Param
	Limits Limits
	Client string // who asks, for SHOW QUERIES
	// Format is how output.Write writes the rows. Where it is empty, Rows.Next returns them.
	Format Format
	// Shown is how many rows FormatTable writes of a longer result, those at its beginning and
	// its end; 0 writes the first 10,000. It counts up to a million.
	Shown int
}

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE,
// SHOW, SUMMARIZE or EXPLAIN. The SQL sees the store and nothing else: no file,
// no network, no setting, nothing that writes. It reads what was committed when
// it began. *QueryError says what is wrong with it.
//
// At most Options.Queries run at the same time; others wait. The Rows must be
// closed; until then ctx ends the query, and so does Options.QueryTime.
func (s *Store) Query(ctx context.Context, sql string, params ...Param) (*Rows, error) {
	return s.Execute(ctx, Statement{SQL: sql, Params: params})
}

// Execute answers a statement as Query does. It also answers SHOW QUERIES and KILL, however
// many queries run.
func (s *Store) Execute(ctx context.Context, q Statement) (*Rows, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	if rows, err := s.executeControl(q); rows != nil || err != nil {
		return rows, err
	}
	q.Limits.Time = cmp.Or(q.Limits.Time, s.options.QueryTime, queryTimeDefault)
	most := cmp.Or(s.options.Memory, memoryDefault)
	q.Limits.Memory = cmp.Or(q.Limits.Memory, most)
	if q.Limits.Memory > most {
		return nil, &QueryError{
			Message: fmt.Sprintf("the query asks for %d MiB of memory, and may use %d MiB", q.Limits.Memory>>20, most>>20),
			Hint:    "raise memory below query in the engine's configuration",
		}
	}
	running := s.queries.add(ctx, &q)
	r, err := s.startQuery(running, &q)
	if err != nil {
		s.queries.remove(running)
		return nil, err
	}
	return r, nil
}

// acquireSlot waits until fewer than Options.Queries queries run; releaseSlot lets the next one run.
func (s *Store) acquireSlot(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) releaseSlot() { <-s.slots }

// startQuery waits for a slot and starts the query.
func (s *Store) startQuery(running *runningQuery, q *Statement) (*Rows, error) {
	ctx, cancel := s.untilClosed(running.ctx)
	if err := s.acquireSlot(ctx); err != nil {
		cancel()
		return nil, err
	}
	running.start()
	snapshot := s.snapshot()
	result, err := s.worker.Query(ctx, sqlworker.Query{
		Version: snapshot.manifest.Version, Ends: snapshot.ends, SQL: describeRequired(snapshot.manifest, q.SQL), Params: q.Params, External: s.systemTables(q.SQL),
		Limits: q.Limits, Parquet: q.Format == FormatParquet,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause == ErrClosed {
			err = cause
		}
		snapshot.release()
		cancel()
		s.releaseSlot()
		return nil, err
	}
	return &Rows{result: result, format: q.Format, shown: q.Shown, running: running, end: func() {
		result.Close()
		snapshot.release()
		cancel()
		s.releaseSlot()
		s.queries.remove(running)
	}}, nil
}

// Rows is the result of a query. It is for one goroutine at a time.
type Rows struct {
	result  result
	format  Format
	shown   int
	running *runningQuery
	end     func()
	once    sync.Once
}

// A result is what a worker answers, or rows that are in memory.
type result interface {
	Columns() []ColumnInfo
	Next() bool
	Row() []any
	Err() error
	Truncated() bool
	WriteStream(w io.Writer) error // of the formats that are not text
	Close() error
}

// Columns describes the columns.
func (r *Rows) Columns() []ColumnInfo { return r.result.Columns() }

// Next goes to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	if !r.result.Next() {
		return false
	}
	r.running.rows.Add(1)
	return true
}

// Row returns the row that Next went to. It belongs to the caller.
func (r *Rows) Row() []any { return r.result.Row() }

// Err says why Next returned false; nil at the end of the result.
func (r *Rows) Err() error { return r.result.Err() }

// Truncated reports whether there were more rows than Limits.Rows, once Next has returned
// false or output.Write has returned.
func (r *Rows) Truncated() bool { return r.result.Truncated() }

// Format returns the format of the statement.
func (r *Rows) Format() Format { return r.format }

// Shown returns Statement.Shown.
func (r *Rows) Shown() int { return r.shown }

// WriteStream writes the rows in the binary format of the statement. It is called instead of Next.
func (r *Rows) WriteStream(w io.Writer) error { return r.result.WriteStream(w) }

// Close ends the query.
func (r *Rows) Close() error {
	r.once.Do(r.end)
	return nil
}
