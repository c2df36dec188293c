//go:build linux && cgo

package sqlworker

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

func TestMain(m *testing.M) {
	Run()
	if folder := os.Getenv(powercutFolder); folder != "" {
		sealAndMerge(folder)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A folder is a store that a test builds by hand.
type folder struct {
	t      testing.TB
	path   string
	m      *manifest.Manifest
	ends   []wal.FileEnd
	client *Client

	logSize int64 // size of a log file; default 64 MiB
}

func newFolder(t testing.TB, o Options) *folder {
	t.Helper()
	f := &folder{t: t, path: t.TempDir(), m: manifest.New()}
	for _, name := range []string{manifest.LogFolder(f.path), manifest.TablesFolder(f.path)} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o.Folder = f.path
	f.client = New(o)
	t.Cleanup(func() { f.client.Close() })
	f.save()
	return f
}

// worker returns the worker that gets the requests of a role, or nil.
func (f *folder) worker(r protocol.Role) *process {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	return f.client.shared[r]
}

func (f *folder) save() {
	f.t.Helper()
	f.m.Version++
	if err := manifest.NewWriter(f.path).Save(f.m); err != nil {
		f.t.Fatal(err)
	}
}

func column(id int32, name string, kind event.Type) manifest.Column {
	return manifest.Column{ID: id, Name: name, Path: []string{name}, Type: kind}
}

// addTable adds a table whose first columns are id, time and event.
func (f *folder) addTable(name string, more ...manifest.Column) *manifest.Table {
	f.t.Helper()
	columns := append([]manifest.Column{column(2, "id", event.Int64), column(3, "time", event.Timestamp), column(4, "event", event.String)}, more...)
	t := &manifest.Table{ID: f.m.NextTable, Name: name, Time: "time", Event: "event", NextColumn: int32(2 + len(columns)),
		Schemas: []*manifest.Schema{{Version: 1, Columns: columns}}}
	f.m.NextTable++
	f.m.Tables = append(f.m.Tables, t)
	f.save()
	return t
}

// frameOf returns a frame of rows in the newest schema.
func frameOf(t *manifest.Table, rows int, fill func(c manifest.Column, v *event.Vector, row int)) []byte {
	s := t.Current()
	e := wal.Entry{Kind: wal.Rows, Table: t.ID, Schema: s.Version, Pipeline: "p", Partition: "q", Range: event.Range{Count: uint64(rows)}, Columns: &event.Columns{Rows: rows}}
	columns := s.Stored()
	if s.Rest {
		columns = append(columns, manifest.Column{ID: manifest.RestID, Name: manifest.RestColumn, Type: event.JSON})
	}
	for _, c := range columns {
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

func addText(v *event.Vector, text string) {
	v.Bytes = append(v.Bytes, text...)
	v.Ends = append(v.Ends, uint32(len(v.Bytes)))
}

var testDay = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// testRow fills rows with ids from first on, one second apart, with ten distinct events.
func testRow(first int) func(c manifest.Column, v *event.Vector, row int) {
	return func(c manifest.Column, v *event.Vector, row int) {
		id := first + row
		switch {
		case c.Name == "id":
			v.Ints = append(v.Ints, int64(id))
		case c.Name == "time":
			v.Ints = append(v.Ints, testDay.Add(time.Duration(id)*time.Second).UnixMicro())
		case c.Name == "event":
			addText(v, fmt.Sprintf("event-%s-%d", strings.Repeat("x", id%10), id%10))
		case c.Type == event.Float64:
			v.Floats = append(v.Floats, float64(id)/2)
		case c.Type == event.Bool, c.Type == event.Int32, c.Type == event.Int64, c.Type == event.Timestamp:
			if v.Null[row] = uint8(id % 2); id%2 == 0 {
				v.Ints = append(v.Ints, int64(id)%2^1)
			} else {
				v.Ints = append(v.Ints, 0)
			}
		case c.Type == event.JSON:
			addText(v, fmt.Sprintf(`{"id": %d}`, id))
		default:
			addText(v, fmt.Sprint("text ", id))
		}
	}
}

// appendFrame appends a frame to a log file.
func (f *folder) appendFrame(number uint64, frame []byte) {
	f.t.Helper()
	if len(f.ends) == 0 || f.ends[len(f.ends)-1].Number != number {
		file, err := os.Create(wal.Path(manifest.LogFolder(f.path), number))
		if err != nil {
			f.t.Fatal(err)
		}
		if err := file.Truncate(cmp.Or(f.logSize, 64<<20)); err != nil {
			f.t.Fatal(err)
		}
		file.Close()
		f.ends = append(f.ends, wal.FileEnd{Number: number, End: wal.FirstFrame})
	}
	end := &f.ends[len(f.ends)-1]
	file, err := os.OpenFile(wal.Path(manifest.LogFolder(f.path), number), os.O_WRONLY, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(frame, end.End); err != nil {
		f.t.Fatal(err)
	}
	end.End += int64(len(frame))
}

func (f *folder) query(ctx context.Context, sql string, params ...protocol.Param) (*Rows, error) {
	return f.client.Query(ctx, Query{Version: f.m.Version, Ends: f.ends, SQL: sql, Params: params})
}

// read returns all rows as text, and the error that ended them.
func read(rows *Rows, err error) (string, error) {
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

// ask returns the rows of a query and fails the test on an error.
func (f *folder) ask(sql string, params ...protocol.Param) string {
	f.t.Helper()
	got, err := read(f.query(f.t.Context(), sql, params...))
	if err != nil {
		f.t.Errorf("%s: %v", sql, err)
	}
	return got
}

func (f *folder) want(sql, want string) {
	f.t.Helper()
	if got := f.ask(sql); got != want {
		f.t.Errorf("%s\ngot  %s\nwant %s", sql, got, want)
	}
}
