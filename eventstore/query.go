//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/lakecache"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// RunWorker runs a worker and does not return if this process was started as one; otherwise
// it returns at once. A program that opens a Store must call it first in main, because the
// store runs its workers from the same executable.
func RunWorker() { sqlworker.Run() }

// Version returns the version of the library that answers queries.
func Version() string { return sqlworker.Version() }

// DataFormats describes the format versions that stores are written in.
func DataFormats() string {
	return fmt.Sprintf("manifest %d, log %d, files %d", manifest.Format, wal.Format, manifest.FileFormat)
}

// The types of row values, besides nil, bool, int64, uint64, float32, float64, string, []byte
// and time.Time. Lists are []any.
type (
	Number = protocol.Number // a number too wide for Go's types: DECIMAL, HUGEINT
	JSON   = protocol.JSON   // a JSON value as stored
	Struct = protocol.Struct // a struct or a map, in its own order
	Field  = protocol.Field  // one entry of a Struct
)

// Functions returns the functions that queries may call.
func Functions() []catalog.FunctionGroup { return statement.Functions() }

// Macros lists the macros that queries may call.
func Macros() []catalog.Macro { return statement.Macros() }

// newWorker prepares the DuckDB processes. Each starts when it is first needed.
func newWorker(folder string, o *Options) *sqlclient.Client {
	return sqlclient.New(sqlclient.Options{
		Folder: folder, Memory: o.Memory, Threads: o.Threads, Log: o.Log,
	})
}

// A Param is a statement parameter: $1 or ? by position, $name by name. Values are nil, bool,
// int, int64, float64, string, []byte, time.Time and TimestampNS.
type Param = protocol.Param

// A TimestampNS is a parameter of type TIMESTAMP_NS, in nanoseconds since 1970. A time.Time
// is a TIMESTAMP, in microseconds.
type TimestampNS = protocol.TimestampNS

// A Format is the output format of a result. The zero Format returns rows from Rows.Next.
type Format = protocol.Format

// The formats; see package protocol.
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

// Text formats a row's value for people; nil is "".
func Text(value any) string { return protocol.Text(value) }

// Limits bound a statement. Zero fields default to those of Options; zero Rows is no limit.
type Limits = protocol.Limits

// A Statement is SQL to execute.
type Statement struct {
	SQL    string
	Params []Param
	Limits Limits
	Client string // the client, for SHOW QUERIES
	// Format is the format in which output.Write writes the rows. If it is empty,
	// Rows.Next returns them.
	Format Format
	// Shown is the number of rows, from both ends, that FormatTable shows of a longer
	// result. 0 shows the first 10,000. FormatTable counts up to a million rows.
	Shown int
}

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE
// or EXPLAIN. The SQL can reach only the store: no files, no network, no settings, no writes.
// It reads a snapshot of the data committed when it began. It returns an *event.Fault for
// invalid SQL.
//
// At most Options.Queries queries run at once; others wait. The caller must close the Rows.
// Until then, the query ends when ctx does or after Options.QueryTime.
func (s *Store) Query(ctx context.Context, sql string, params ...Param) (*Rows, error) {
	return s.Execute(ctx, Statement{SQL: sql, Params: params})
}

// Execute executes a statement like Query. It also handles SHOW QUERIES and KILL, which do
// not wait for other queries.
func (s *Store) Execute(ctx context.Context, q Statement) (*Rows, error) {
	if s.isClosed() {
		return nil, ErrClosed
	}
	if rows, err := s.executeControl(q); rows != nil || err != nil {
		return rows, err
	}
	q.Limits.Time = cmp.Or(q.Limits.Time, s.options.QueryTime, catalog.DefaultQueryTime)
	limit := cmp.Or(s.options.Memory, catalog.DefaultQueryMemory)
	q.Limits.Memory = cmp.Or(q.Limits.Memory, limit)
	if q.Limits.Memory > limit {
		return nil, &event.Fault{
			Message: fmt.Sprintf("the query asks for %d MiB of memory; the limit is %d MiB", q.Limits.Memory>>20, limit>>20),
			Hint:    "raise memory below query in the engine's configuration",
		}
	}
	running := s.queries.add(ctx, &q)
	r, err := s.startQuery(running, &q)
	if err != nil {
		s.endQuery(running, err)
		return nil, err
	}
	return r, nil
}

// A querySlot is the slot of a running query in Store.slots, which limits how many run at once. While
// files of lakes are fetched for it, it has a slot in Store.fetching instead, so that a slow lake does
// not keep other queries from running.
type querySlot struct {
	in chan struct{} // nil for none
}

// moveTo gives the present slot up, if there is one, and waits for one of slots. A query that kept its
// slot meanwhile could wait for one that wants the opposite change. After an error it has none.
func (q *querySlot) moveTo(ctx context.Context, slots chan struct{}) error {
	q.release()
	select {
	case slots <- struct{}{}:
		q.in = slots
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *querySlot) release() {
	if q.in != nil {
		<-q.in
	}
	q.in = nil
}

// startQuery waits for a slot and starts the query.
func (s *Store) startQuery(running *runningQuery, q *Statement) (*Rows, error) {
	ctx, cancel := s.untilClosed(running.ctx)
	ended := s.reading.begin()
	slot := new(querySlot)
	if err := slot.moveTo(ctx, s.slots); err != nil {
		cancel()
		ended()
		return nil, err
	}
	running.start()
	snapshot := s.snapshot()
	pins := &pins{store: s, snapshot: snapshot, slot: slot}
	result, err := s.worker.Query(ctx, sqlclient.Query{
		Version: snapshot.manifest.Version, Ends: snapshot.ends, SQL: statement.DescribeRequired(snapshot.manifest, q.SQL), Params: q.Params, External: s.systemTables(q.SQL),
		Limits: q.Limits, Parquet: q.Format == FormatParquet, Fetch: pins.fetch,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause == ErrClosed {
			err = cause
		}
		pins.release()
		snapshot.release()
		cancel()
		slot.release()
		ended()
		return nil, err
	}
	return &Rows{result: result, format: q.Format, shown: q.Shown, running: running, end: func() {
		result.Close()
		pins.release()
		snapshot.release()
		cancel()
		slot.release()
		s.endQuery(running, result.Err())
		ended()
	}}, nil
}

// A pins keeps the files of lakes on disk that one query reads.
type pins struct {
	store    *Store
	snapshot snapshot
	slot     *querySlot
	mu       sync.Mutex
	ended    bool
	pinned   *lakecache.Pinned
}

// fetch brings files to the disk, and gives up those of an earlier call. The worker may have a
// newer manifest than the snapshot.
func (p *pins) fetch(ctx context.Context, needed []protocol.NeededFile) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pinned.Release()
	p.pinned = nil
	s := p.store
	var files []lakecache.File
	var tables []uint32
	for _, one := range needed {
		t, f := fileOf(p.snapshot.manifest, one)
		if f != nil && f.Remote == nil { // it left meanwhile, but the snapshot keeps it
			continue
		}
		if f == nil {
			if t, f = fileOf(s.current(), one); f == nil {
				return &event.Fault{Message: "a file that the query needs was replaced meanwhile", Hint: "try again"}
			}
			if f.Remote == nil {
				continue
			}
		}
		files = append(files, lakecache.Of(s.folder, t, f))
		if !slices.Contains(tables, t.ID) {
			tables = append(tables, t.ID)
		}
	}
	if len(files) == 0 || p.ended {
		return nil
	}
	if s.options.ReadOnly {
		for _, f := range files {
			if !lakecache.Has(f) {
				return &event.Fault{Message: "the query needs rows that are in a lake, and the store is open to read only", Hint: "open it to write, which fetches them; or narrow the query by time"}
			}
		}
		return nil
	}
	if err := p.slot.moveTo(ctx, s.fetching); err != nil {
		return err
	}
	err := s.checkLakes(ctx, needed, tables)
	if err == nil {
		p.pinned, err = s.lakes.cache.Pin(ctx, files, false)
	}
	if err != nil {
		return err
	}
	return p.slot.moveTo(ctx, s.slots)
}

// release gives up the files.
func (p *pins) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.pinned.Release()
}

// fileOf returns a file of a manifest, or nil.
func fileOf(m *manifest.Manifest, one protocol.NeededFile) (*manifest.Table, *manifest.File) {
	t := m.TableByID(one.Table)
	if t == nil {
		return nil, nil
	}
	i := slices.IndexFunc(t.Files, func(f *manifest.File) bool { return f.Name == one.Name })
	if i < 0 {
		return t, nil
	}
	return t, t.Files[i]
}

// checkLakes returns an error if other engines have changed rows of the needed files in a lake: the
// store's own data would show rows that were deleted there.
func (s *Store) checkLakes(ctx context.Context, needed []protocol.NeededFile, tables []uint32) error {
	m := s.current()
	tables = slices.DeleteFunc(tables, func(id uint32) bool { // its files are about to come back
		t := m.TableByID(id)
		return t == nil || t.Lake == nil || t.Lake.UUID == ""
	})
	if err := s.look(ctx, tables); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &event.Fault{Message: "the query needs rows that are in a lake, which cannot be reached: " + err.Error(),
			Hint: cmp.Or(event.HintOf(err), "try again") + "; or narrow the query by time to rows that are on this disk"}
	}
	m = s.current()
	for _, one := range needed {
		t, f := fileOf(m, one)
		switch {
		case t == nil || f != nil && f.Remote == nil:
		case f != nil && f.Gone:
			return &event.Fault{Message: fmt.Sprintf("another engine has rewritten file %s of table %s in the lake, and may have changed or deleted its rows", f.Name, t.Name),
				Hint: "read those rows in the lake; or narrow the query by time to rows that are on this disk"}
		case t.Lake == nil:
		case t.Lake.Deletes > 0:
			return &event.Fault{Message: fmt.Sprintf("another engine has deleted rows of table %s in the lake, by %d delete files, and the query needs files that are only there", t.Name, t.Lake.Deletes),
				Hint: "compact the lake table with that engine and read those rows there; or narrow the query by time to rows that are on this disk"}
		}
	}
	return nil
}

// Rows is the result of a query. It is not safe for concurrent use.
type Rows struct {
	result  result
	format  Format
	shown   int
	running *runningQuery
	end     func()
	once    sync.Once
}

// A result is the answer of a worker, or rows in memory.
type result interface {
	Columns() []catalog.Column
	Next() bool
	Row() []any
	Err() error
	Truncated() bool
	WriteStream(w io.Writer) error // for binary formats
	Close() error
}

// Columns describes the columns.
func (r *Rows) Columns() []catalog.Column { return r.result.Columns() }

// Next advances to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	if !r.result.Next() {
		return false
	}
	r.running.rows.Add(1)
	return true
}

// Row returns the current row. The caller owns it.
func (r *Rows) Row() []any { return r.result.Row() }

// Err returns the error that ended the rows, or nil at the end of the result.
func (r *Rows) Err() error { return r.result.Err() }

// Truncated reports whether the result had more rows than Limits.Rows. It is valid once Next
// has returned false or output.Write has returned.
func (r *Rows) Truncated() bool { return r.result.Truncated() }

// Format returns the format of the statement.
func (r *Rows) Format() Format { return r.format }

// Shown returns Statement.Shown.
func (r *Rows) Shown() int { return r.shown }

// WriteStream writes the rows in the statement's binary format. Call it instead of Next.
func (r *Rows) WriteStream(w io.Writer) error { return r.result.WriteStream(w) }

// Close ends the query.
func (r *Rows) Close() error {
	r.once.Do(r.end)
	return nil
}
