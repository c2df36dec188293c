package stores

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/bench/dataset"
	"github.com/perigeedb/perigee/event"
)

type duckDB struct {
	events *dataset.Events
	db     duck.Database
	conn   duck.Connection // of queries
}

// createTable makes the table with the types that Perigee's store infers.
const createTable = `CREATE TABLE IF NOT EXISTS ` + dataset.Table + ` (id BIGINT, time TIMESTAMP, event VARCHAR, user_id BIGINT,
	hash VARCHAR, country VARCHAR, url VARCHAR, value DOUBLE, status BIGINT, meta JSON)`

// openDuckDB opens a database file with DuckDB's defaults.
func openDuckDB(folder string, events *dataset.Events) (*duckDB, error) {
	return newDuckDB(filepath.Join(folder, "events.duckdb"), events, createTable)
}

// openParquet reads the Parquet files that CopyToParquet wrote, as one glob.
func openParquet(folder string) (*duckDB, error) {
	return newDuckDB("", nil, fmt.Sprintf("CREATE VIEW %s AS FROM read_parquet('%s/**/*.parquet', hive_partitioning = false)", dataset.Table, folder))
}

func newDuckDB(path string, events *dataset.Events, statement string) (*duckDB, error) {
	d := &duckDB{events: events}
	var message string
	if duck.OpenExt(path, &d.db, duck.Config{}, &message) == duck.StateError {
		return nil, fmt.Errorf("open %s: %s", path, message)
	}
	if duck.Connect(d.db, &d.conn) == duck.StateError {
		return nil, errors.New("connect to DuckDB")
	}
	return d, execute(d.conn, statement)
}

// CopyToParquet writes the table of a DuckDB store as Parquet files, a folder for each day.
func CopyToParquet(s Store, folder string) error {
	return execute(s.(*duckDB).conn, fmt.Sprintf("COPY (SELECT *, strftime(time, '%%Y-%%m-%%d') AS day FROM %s) TO '%s' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day))", dataset.Table, folder))
}

func execute(conn duck.Connection, sql string) error {
	var result duck.Result
	defer duck.DestroyResult(&result)
	if duck.Query(conn, sql, &result) == duck.StateError {
		return errors.New(duck.ResultError(&result))
	}
	return nil
}

func (d *duckDB) TimeLiteral(us int64) string { return duckTime(us) }

func duckTime(us int64) string {
	return "TIMESTAMP '" + time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000") + "'"
}

func (d *duckDB) Close() error {
	duck.Disconnect(&d.conn)
	duck.Close(&d.db)
	return nil
}

func (d *duckDB) Query(_ context.Context, sql string) (r Result, err error) {
	var result duck.Result
	defer duck.DestroyResult(&result)
	if duck.Query(d.conn, sql, &result) == duck.StateError {
		return r, errors.New(duck.ResultError(&result))
	}
	var text []byte
	for chunk := duck.FetchChunk(result); chunk.Ptr != nil; chunk = duck.FetchChunk(result) {
		columns := readColumns(&result, chunk)
		for row := range int(duck.DataChunkGetSize(chunk)) {
			text = text[:0]
			for _, c := range columns {
				text = append(c.appendValue(text, row), '|')
			}
			if r.Rows == 0 {
				r.First = string(columns[0].appendValue(nil, row))
			}
			r.addRow(text)
		}
		duck.DestroyDataChunk(&chunk)
	}
	return r, nil
}

// A resultColumn is one column of a chunk.
type resultColumn struct {
	kind duck.Type
	data unsafe.Pointer
}

func readColumns(result *duck.Result, chunk duck.DataChunk) []resultColumn {
	columns := make([]resultColumn, duck.DataChunkGetColumnCount(chunk))
	for i := range columns {
		at := duck.IdxT(i)
		columns[i] = resultColumn{kind: duck.ColumnType(result, at), data: duck.VectorGetData(duck.DataChunkGetVector(chunk, at))}
	}
	return columns
}

func (c resultColumn) appendValue(text []byte, row int) []byte {
	switch c.kind {
	case duck.TypeDouble:
		return text
	case duck.TypeVarchar:
		return append(text, valueAt[textValue](c, row).text()...)
	default: // BIGINT and TIMESTAMP
		return strconv.AppendInt(text, *valueAt[int64](c, row), 10)
	}
}

func valueAt[T any](c resultColumn, row int) *T { return &unsafe.Slice((*T)(c.data), row+1)[row] }

// A textValue is DuckDB's duckdb_string_t: the length, then up to 12 bytes of text, or the
// first 4 of them and a pointer.
type textValue struct {
	length uint32
	inline [12]byte
}

func (t *textValue) text() []byte {
	if int(t.length) <= len(t.inline) {
		return t.inline[:t.length]
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&t.inline[4])), t.length)
}

// A duckWriter appends chunks of typed columns, and flushes the appender at the end of a
// batch, which commits it.
type duckWriter struct {
	events   *dataset.Events
	conn     duck.Connection
	appender duck.Appender
	types    []duck.LogicalType
	chunk    duck.DataChunk
	batch    event.Columns
}

func (d *duckDB) NewWriter() (Writer, error) {
	w := &duckWriter{events: d.events}
	if duck.Connect(d.db, &w.conn) == duck.StateError {
		return nil, errors.New("connect to DuckDB")
	}
	if duck.AppenderCreateExt(w.conn, "", "", dataset.Table, &w.appender) == duck.StateError {
		return nil, errors.New(duck.AppenderError(w.appender))
	}
	for i := range duck.AppenderColumnCount(w.appender) {
		w.types = append(w.types, duck.AppenderColumnType(w.appender, i))
	}
	w.chunk = duck.CreateDataChunk(w.types)
	return w, nil
}

func (w *duckWriter) Prepare(first uint64, n int) { w.events.Columns(&w.batch, first, n) }

func (w *duckWriter) Commit(context.Context) error {
	capacity := int(duck.VectorSize())
	for first := 0; first < w.batch.Rows; first += capacity {
		n := min(capacity, w.batch.Rows-first)
		duck.DataChunkReset(w.chunk)
		for i := range w.batch.Vectors {
			fillVector(duck.DataChunkGetVector(w.chunk, duck.IdxT(i)), dataset.Columns[i].Type, &w.batch.Vectors[i], first, n)
		}
		duck.DataChunkSetSize(w.chunk, duck.IdxT(n))
		if duck.AppendDataChunk(w.appender, w.chunk) == duck.StateError {
			return errors.New(duck.AppenderError(w.appender))
		}
	}
	if duck.AppenderFlush(w.appender) == duck.StateError {
		return errors.New(duck.AppenderError(w.appender))
	}
	return nil
}

func fillVector(to duck.Vector, t event.Type, from *event.Vector, first, n int) {
	data := duck.VectorGetData(to)
	switch t {
	case event.Float64:
		copy(unsafe.Slice((*float64)(data), n), from.Floats[first:])
	case event.String, event.JSON:
		values := unsafe.Slice((*textValue)(data), n)
		for row := range values {
			fillText(&values[row], to, row, from.Text(first+row))
		}
	default:
		copy(unsafe.Slice((*int64)(data), n), from.Ints[first:])
	}
}

// fillText writes short texts in place, and lets DuckDB copy long ones.
func fillText(value *textValue, to duck.Vector, row int, text []byte) {
	if len(text) > len(value.inline) {
		duck.VectorAssignStringElementLen(to, duck.IdxT(row), text)
		return
	}
	*value = textValue{length: uint32(len(text))}
	copy(value.inline[:], text)
}

func (w *duckWriter) Close() error {
	duck.AppenderDestroy(&w.appender)
	duck.DestroyDataChunk(&w.chunk)
	for i := range w.types {
		duck.DestroyLogicalType(&w.types[i])
	}
	duck.Disconnect(&w.conn)
	return nil
}
