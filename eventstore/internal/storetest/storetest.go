//go:build linux && cgo

// Package storetest builds the folder of an event store by hand, for tests of the packages
// that read and write it. A Folder is not safe for concurrent use.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A Folder is a store that a test builds by hand.
type Folder struct {
	T       testing.TB
	Path    string
	M       *manifest.Manifest
	Ends    []wal.FileEnd
	LogSize int64 // size of a log file; default 64 MiB

	Writer Writer
	Query  func(ctx context.Context, sql string, params ...protocol.Param) (Rows, error)
}

// A Writer writes Parquet files: a client of the SQL workers.
type Writer interface {
	WriteSegment(context.Context, protocol.Segment) ([]protocol.Written, error)
	Merge(context.Context, protocol.Merge) ([]protocol.Merged, error)
}

// Rows is the result of a query.
type Rows interface {
	Next() bool
	Row() []any
	Err() error
	Close() error
}

// New returns an empty store.
func New(t testing.TB) *Folder {
	t.Helper()
	f := &Folder{T: t, Path: t.TempDir(), M: manifest.New()}
	for _, name := range []string{manifest.LogFolder(f.Path), manifest.TablesFolder(f.Path)} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.Save()
	return f
}

// OpenConn returns a connection to a DuckDB of its own.
func OpenConn(t testing.TB) *duckdb.Conn {
	t.Helper()
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Exec("SET TimeZone = 'UTC'"); err != nil {
		t.Fatal(err)
	}
	return c
}

// IsMapped reports whether this process has mapped a file.
func IsMapped(t testing.TB, path string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), " "+path+"\n")
}

// Save saves the manifest as a new version.
func (f *Folder) Save() {
	f.T.Helper()
	f.M.Version++
	if err := manifest.NewWriter(f.Path).Save(f.M); err != nil {
		f.T.Fatal(err)
	}
}

// Column returns a column of the given type.
func Column(id int32, name string, kind event.Type) manifest.Column {
	return manifest.Column{ID: id, Name: name, Path: []string{name}, Type: kind}
}

// AddTable adds a table whose first columns are id, time and event.
func (f *Folder) AddTable(name string, more ...manifest.Column) *manifest.Table {
	f.T.Helper()
	columns := append([]manifest.Column{Column(2, "id", event.Int64), Column(3, "time", event.Timestamp), Column(4, "event", event.String)}, more...)
	t := &manifest.Table{ID: f.M.NextTable, Name: name, Time: "time", Event: "event", NextColumn: int32(2 + len(columns)),
		Schemas: []*manifest.Schema{{Version: 1, Columns: columns}}}
	f.M.NextTable++
	f.M.Tables = append(f.M.Tables, t)
	f.Save()
	return t
}

// FrameOf returns a frame of rows in the newest schema.
func FrameOf(t *manifest.Table, rows int, fill func(c manifest.Column, v *event.Vector, row int)) []byte {
	s := t.Current()
	e := wal.Entry{Kind: wal.Rows, Table: t.ID, Schema: s.Version, Pipeline: "p", Partition: "q", Range: event.Range{Count: uint64(rows)}, Columns: &event.Columns{Rows: rows}}
	for _, c := range tablesql.StoredColumns(t) {
		var v event.Vector
		v.Null = make([]uint8, rows)
		for row := range rows {
			fill(c, &v, row)
			if c.Name == t.Time {
				if row == 0 {
					e.MinTime, e.MaxTime = v.Ints[0], v.Ints[0]
				}
				e.MinTime, e.MaxTime = min(e.MinTime, v.Ints[row]), max(e.MaxTime, v.Ints[row])
			}
		}
		e.IDs = append(e.IDs, c.ID)
		e.Columns.Spec = append(e.Columns.Spec, event.Column{Type: c.Type})
		e.Columns.Vectors = append(e.Columns.Vectors, v)
	}
	return wal.AppendEntry(nil, &e)
}

// AddText appends a text to a vector.
func AddText(v *event.Vector, text string) {
	v.Bytes = append(v.Bytes, text...)
	v.Ends = append(v.Ends, uint32(len(v.Bytes)))
}

// Day is the day of the first rows.
var Day = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// Row returns a function that fills rows with ids from first on, one second apart, with ten distinct events.
func Row(first int) func(c manifest.Column, v *event.Vector, row int) {
	return func(c manifest.Column, v *event.Vector, row int) {
		id := first + row
		switch {
		case c.Name == "id":
			v.Ints = append(v.Ints, int64(id))
		case c.Name == "time":
			v.Ints = append(v.Ints, Day.Add(time.Duration(id)*time.Second).UnixMicro())
		case c.Name == "event":
			AddText(v, fmt.Sprintf("event-%s-%d", strings.Repeat("x", id%10), id%10))
		case c.Type == event.Float64:
			v.Floats = append(v.Floats, float64(id)/2)
		case c.Type == event.Bool, c.Type == event.Int32, c.Type == event.Int64, c.Type == event.Timestamp:
			if v.Null[row] = uint8(id % 2); id%2 == 0 {
				v.Ints = append(v.Ints, int64(id)%2^1)
			} else {
				v.Ints = append(v.Ints, 0)
			}
		case c.Type == event.JSON:
			AddText(v, fmt.Sprintf(`{"id": %d}`, id))
		default:
			AddText(v, fmt.Sprint("text ", id))
		}
	}
}

// AppendFrame appends a frame to a log file.
func (f *Folder) AppendFrame(number uint64, frame []byte) {
	f.T.Helper()
	if len(f.Ends) == 0 || f.Ends[len(f.Ends)-1].Number != number {
		file, err := os.Create(wal.Path(manifest.LogFolder(f.Path), number))
		if err != nil {
			f.T.Fatal(err)
		}
		if err := file.Truncate(cmp.Or(f.LogSize, 64<<20)); err != nil {
			f.T.Fatal(err)
		}
		file.Close()
		f.Ends = append(f.Ends, wal.FileEnd{Number: number, End: wal.FirstFrame})
	}
	end := &f.Ends[len(f.Ends)-1]
	file, err := os.OpenFile(wal.Path(manifest.LogFolder(f.Path), number), os.O_WRONLY, 0)
	if err != nil {
		f.T.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(frame, end.End); err != nil {
		f.T.Fatal(err)
	}
	end.End += int64(len(frame))
}

// Seal moves the rows of a log file into files of the manifest.
func (f *Folder) Seal(number uint64) {
	f.T.Helper()
	for _, end := range f.Ends {
		if end.Number != number {
			continue
		}
		segment := protocol.Segment{Version: f.M.Version, Log: end, Number: f.M.NextSegment}
		written, err := f.Writer.WriteSegment(f.T.Context(), segment)
		if errors.Is(err, protocol.ErrMemory) { // as a store does; the race detector needs much
			segment.LowMemory = true
			written, err = f.Writer.WriteSegment(f.T.Context(), segment)
		}
		if err != nil {
			f.T.Fatal(err)
		}
		f.M.NextSegment++
		f.M.LogStart = number + 1
		for _, w := range written {
			table := f.M.TableByID(w.Table)
			table.Files = append(table.Files, &w.File)
		}
	}
	f.Save()
}

// Merge merges groups of files of a table and saves the manifest.
func (f *Folder) Merge(table *manifest.Table, groups ...[]string) []protocol.Merged {
	f.T.Helper()
	merged, err := f.Writer.Merge(f.T.Context(), protocol.Merge{Version: f.M.Version, Table: table.ID, Groups: groups, Number: f.M.NextSegment})
	if err != nil {
		f.T.Fatal(err)
	}
	f.M.NextSegment++
	for i, m := range merged {
		if m.Unchanged {
			continue
		}
		table.Files = slices.DeleteFunc(table.Files, func(file *manifest.File) bool { return slices.Contains(groups[i], file.Name) })
		if m.File != nil {
			table.Files = append(table.Files, m.File)
		}
	}
	f.Save()
	return merged
}

// MergeAll merges the files of each day.
func (f *Folder) MergeAll(t *manifest.Table) {
	f.T.Helper()
	days := map[string][]string{}
	for _, file := range t.Files {
		days[file.Day] = append(days[file.Day], file.Name)
	}
	f.Merge(t, slices.Collect(maps.Values(days))...)
}

// AddFiles adds Parquet files with rows events each, one per second.
func (f *Folder) AddFiles(t *manifest.Table, files, rows int) {
	f.T.Helper()
	c := OpenConn(f.T)
	for i := range files {
		first := i * rows
		from := Day.Add(time.Duration(first) * time.Second)
		day := from.Format(time.DateOnly)
		file := &manifest.File{Name: manifest.FileName(day, f.M.NextSegment, 0), Segment: f.M.NextSegment, Schema: 1, Day: day, Rows: int64(rows), Log: 0,
			MinTime: from.UnixMicro(), MaxTime: from.Add(time.Duration(rows-1) * time.Second).UnixMicro()}
		path := t.Path(f.Path, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			f.T.Fatal(err)
		}
		if err := c.Exec(fmt.Sprintf(`COPY (SELECT i AS id, make_timestamp(%d + i * 1000000) AS time, 'event-' || (i %% 10) AS event, 'key-' || hash(i) AS key, random() AS amount
			FROM range(%d, %d) t(i) ORDER BY event, time) TO %s (FORMAT parquet, COMPRESSION zstd)`, Day.UnixMicro(), first, first+rows, sqltext.Literal(path))); err != nil {
			f.T.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			f.T.Fatal(err)
		}
		file.Bytes = info.Size()
		t.Files = append(t.Files, file)
		f.M.NextSegment++
	}
	f.Save()
}

// Read returns all rows as text, and the error that ended them.
func Read(rows Rows, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var cells []string
		for _, value := range rows.Row() {
			cells = append(cells, protocol.Text(value))
		}
		lines = append(lines, strings.Join(cells, ","))
	}
	return strings.Join(lines, "\n"), rows.Err()
}

// Ask returns the rows of a query and fails the test on an error.
func (f *Folder) Ask(sql string, params ...protocol.Param) string {
	f.T.Helper()
	got, err := Read(f.Query(f.T.Context(), sql, params...))
	if err != nil {
		f.T.Errorf("%s: %v", sql, err)
	}
	return got
}

// Want fails the test unless a query returns the given rows.
func (f *Folder) Want(sql, want string) {
	f.T.Helper()
	if got := f.Ask(sql); got != want {
		f.T.Errorf("%s\ngot  %s\nwant %s", sql, got, want)
	}
}
