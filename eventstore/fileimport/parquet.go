//go:build linux && cgo

package fileimport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A ParquetFile reads the rows of a Parquet file as documents, in file order. A separate
// sandboxed process reads the file and can open no other file, so a malicious file can harm
// only that process. A ParquetFile is not safe for concurrent use.
type ParquetFile struct {
	name    string
	folder  string // working directory of the process
	worker  *sqlclient.Client
	count   int64
	columns []parquetColumn
	next    int64           // number of the next row
	rows    *sqlclient.Rows // rows from next on; nil until the first read
	doc     []byte
}

var _ File = (*ParquetFile)(nil)

// A parquetColumn is a column and the SQL expression that reads it.
type parquetColumn struct {
	event.Column
	sql string
}

// OpenParquet opens a Parquet file. It returns an *event.PermanentError if a column has a
// type that tables do not support.
func OpenParquet(ctx context.Context, name string) (*ParquetFile, error) {
	f := &ParquetFile{name: name}
	if err := f.open(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *ParquetFile) open(ctx context.Context) (err error) {
	path, err := filepath.Abs(f.name)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("open the Parquet file: %w", err)
	}
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return err
	}
	if f.folder, err = os.MkdirTemp(temp, "perigee-parquet-"); err != nil {
		return fmt.Errorf("create a folder for the process that reads Parquet: %w", err)
	}
	if err := os.Symlink(path, f.link()); err != nil {
		return err
	}
	f.worker = sqlclient.New(sqlclient.Options{Folder: f.folder, Threads: 1, File: path})
	described, err := f.readAll(ctx, "DESCRIBE SELECT * FROM "+f.source())
	if err != nil {
		return err
	}
	for _, row := range described {
		if err := f.addColumn(protocol.Text(row[0]), protocol.Text(row[1])); err != nil {
			return err
		}
	}
	counted, err := f.readAll(ctx, "SELECT CAST(sum(num_rows) AS BIGINT) FROM parquet_file_metadata("+sqltext.Literal(f.link())+")")
	if err != nil {
		return err
	}
	f.count, _ = counted[0][0].(int64)
	return nil
}

// link returns a name of the file that DuckDB does not expand as a pattern.
func (f *ParquetFile) link() string { return filepath.Join(f.folder, "file.parquet") }

func (f *ParquetFile) source() string {
	return "read_parquet(" + sqltext.Literal(f.link()) + ", hive_partitioning = false)"
}

// readAll returns all rows of a short result.
func (f *ParquetFile) readAll(ctx context.Context, sql string) (all [][]any, err error) {
	rows, err := f.worker.Read(ctx, sql)
	if err != nil {
		return nil, f.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		all = append(all, rows.Row())
	}
	return all, f.explain(rows.Err())
}

// explain replaces the link in an error with the name that the user gave.
func (f *ParquetFile) explain(err error) error {
	if e, ok := errors.AsType[*event.Fault](err); ok {
		return errors.New(strings.ReplaceAll(e.Message, f.link(), f.name))
	}
	return err
}

// parquetTypes maps DuckDB types to the column types of tables.
var parquetTypes = map[string]event.Type{
	"BOOLEAN": event.Bool, "TINYINT": event.Int32, "SMALLINT": event.Int32, "INTEGER": event.Int32, "UTINYINT": event.Int32, "USMALLINT": event.Int32,
	"UINTEGER": event.Int64, "BIGINT": event.Int64, "FLOAT": event.Float64, "DOUBLE": event.Float64, "VARCHAR": event.String, "JSON": event.JSON, "BLOB": event.Bytes,
	"TIMESTAMP": event.Timestamp, "TIMESTAMP_S": event.Timestamp, "TIMESTAMP_MS": event.Timestamp, "DATE": event.Timestamp, "TIMESTAMP WITH TIME ZONE": event.Timestamp,
	"UUID": event.String, "TIME": event.String,
}

// parquetCasts maps types without a column type to the types that they are cast to.
var parquetCasts = map[string]string{"FLOAT": "DOUBLE", "DATE": "TIMESTAMP", "UUID": "VARCHAR", "TIME": "VARCHAR", "UBIGINT": "DECIMAL(20,0)"}

// addColumn adds a column of the file; kind is its SQL type.
func (f *ParquetFile) addColumn(name, kind string) error {
	c := parquetColumn{Column: event.Column{Name: name, Path: []string{name}}, sql: sqltext.QuoteName(name)}
	base, digits, _ := strings.Cut(kind, "(")
	known := true
	switch {
	case strings.HasSuffix(kind, "]") || base == "STRUCT" || base == "MAP":
		c.Type = event.JSON
	case base == "ENUM":
		c.Type, c.sql = event.String, "CAST("+c.sql+" AS VARCHAR)"
	case base == "DECIMAL":
		c.Type = event.Decimal
		_, err := fmt.Sscanf(digits, "%d,%d", &c.Digits.Precision, &c.Digits.Scale)
		known = err == nil
	case base == "UBIGINT":
		c.Type, c.Digits = event.Decimal, event.Digits{Precision: 20}
	case base == "TIMESTAMP_NS":
		c.Type, known = event.ParseType("timestamp_ns")
	case kind == `"NULL"` || kind == "NULL": // all values are null
		return nil
	default:
		c.Type, known = parquetTypes[kind]
	}
	if !known {
		return &event.PermanentError{Err: fmt.Errorf("eventstore: column %s has the unsupported type %s", name, kind), Hint: "leave the column out of the file, or cast it there"}
	}
	if cast := parquetCasts[base]; cast != "" {
		c.sql = "CAST(" + c.sql + " AS " + cast + ")"
	}
	f.columns = append(f.columns, c)
	return nil
}

// Count returns the number of rows.
func (f *ParquetFile) Count() uint64 { return uint64(f.count) }

// Columns returns the columns of a table for these rows. It leaves out _rest, which every
// table has.
func (f *ParquetFile) Columns() (columns []event.Column) {
	for _, c := range f.columns {
		if c.Name != catalog.RestColumn {
			columns = append(columns, c.Column)
		}
	}
	return columns
}

// Skip implements Rows.
func (f *ParquetFile) Skip(_ context.Context, n uint64) error {
	f.next += int64(n)
	f.closeRows()
	return nil
}

// Read implements Rows. The rejected column of a row has a value that a document cannot
// represent.
func (f *ParquetFile) Read(ctx context.Context) (Row, error) {
	if f.rows == nil {
		if err := f.readFrom(ctx, f.next); err != nil {
			return Row{}, err
		}
	}
	if !f.rows.Next() {
		if err := f.rows.Err(); err != nil {
			return Row{}, f.explain(err)
		}
		if f.next < f.count {
			return Row{}, fmt.Errorf("%s has %d rows, and %d could be read", f.name, f.count, f.next)
		}
		return Row{}, io.EOF
	}
	f.next++
	doc, rejected := f.encode(f.rows.Row())
	return Row{Doc: doc, Line: int(f.next), Rejected: rejected}, nil
}

func (f *ParquetFile) readFrom(ctx context.Context, first int64) (err error) {
	list := []string{"1"} // the file has no columns
	for _, c := range f.columns {
		list = append(list, c.sql)
	}
	sql := fmt.Sprintf("SELECT %s FROM %s OFFSET %d", strings.Join(list[min(1, len(f.columns)):], ", "), f.source(), first)
	f.rows, err = f.worker.Read(ctx, sql)
	return f.explain(err)
}

// encode encodes a row as a document and leaves out nulls.
func (f *ParquetFile) encode(row []any) (doc []byte, rejected *catalog.RejectedRow) {
	doc = append(f.doc[:0], '{')
	for i, c := range f.columns {
		if row[i] == nil {
			continue
		}
		if bad := unencodable(row[i]); bad != "" && rejected == nil {
			rejected = &catalog.RejectedRow{Column: c.Name, Reason: "JSON cannot represent " + bad}
		}
		members, isRest := restMembers(c.Name, row[i])
		if isRest && members == "" {
			continue
		}
		if len(doc) > 1 {
			doc = append(doc, ',')
		}
		if isRest {
			doc = append(doc, members...)
			continue
		}
		doc = append(protocol.AppendString(doc, c.Name), ':')
		doc = protocol.AppendJSON(doc, row[i])
	}
	f.doc = append(doc, '}')
	if bytes.IndexByte(f.doc, '\n') >= 0 { // a JSON column may hold newlines between values; documents are single lines
		var compact bytes.Buffer
		if json.Compact(&compact, f.doc) != nil {
			return []byte("{}"), &catalog.RejectedRow{Reason: "a JSON column contains invalid JSON"}
		}
		f.doc = compact.Bytes()
	}
	return f.doc, rejected
}

// restMembers returns the fields in a row's _rest column, which an export writes.
func restMembers(name string, value any) (members string, ok bool) {
	text, isJSON := value.(protocol.JSON)
	members, ok = strings.CutPrefix(strings.TrimSpace(string(text)), "{")
	return strings.TrimSpace(strings.TrimSuffix(members, "}")), ok && isJSON && name == catalog.RestColumn
}

// unencodable returns the number in a value that JSON cannot represent, or "".
func unencodable(value any) string {
	number := 0.0
	switch value := value.(type) {
	case float64:
		number = value
	case float32:
		number = float64(value)
	case []any:
		for _, item := range value {
			if bad := unencodable(item); bad != "" {
				return bad
			}
		}
	case protocol.Struct:
		for _, field := range value {
			if bad := unencodable(field.Value); bad != "" {
				return bad
			}
		}
	}
	switch {
	case math.IsNaN(number):
		return "NaN"
	case math.IsInf(number, 0):
		return "infinity"
	}
	return ""
}

func (f *ParquetFile) closeRows() {
	if f.rows != nil {
		_ = f.rows.Close() // the remaining rows are not needed
		f.rows = nil
	}
}

// Close ends the process that reads the file.
func (f *ParquetFile) Close() error {
	f.closeRows()
	if f.worker != nil {
		_ = f.worker.Close()
	}
	if f.folder == "" {
		return nil
	}
	return os.RemoveAll(f.folder)
}
