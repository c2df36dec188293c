//go:build linux && cgo

package sqlworker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

func TestSegment(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "amount", event.Float64), storetest.Column(6, "data", event.JSON), storetest.Column(7, "flag", event.Bool))
	other := f.AddTable("other")
	const perDay = 86400
	f.AppendFrame(1, storetest.FrameOf(table, 2000, storetest.Row(perDay-1000)))
	f.AppendFrame(1, storetest.FrameOf(other, 10, storetest.Row(0)))
	f.AppendFrame(1, storetest.FrameOf(table, 100, storetest.Row(0)))
	f.AppendFrame(2, storetest.FrameOf(table, 10, storetest.Row(2*perDay)))
	const all = `SELECT count(*), sum(id), sum(amount), count(flag), max(data->>'id'), min(time), max(event) FROM events`
	before := f.Ask(all)
	f.Seal(1)
	f.Want(all, before)
	f.Want(`SELECT count(*) FROM other`, "10")
	if n := len(table.Files); n != 2 {
		t.Fatalf("got %d files, want 2", n)
	}
	for i, want := range []manifest.File{
		{Name: "2026-11-22/0000000001-0.parquet", Bloom: "2026-11-22/0000000001-0.bloom", Segment: 1, Schema: 1, Format: manifest.FileFormat, Day: "2026-11-22", Rows: 1100, Log: 1, MinTime: storetest.Day.UnixMicro(), MaxTime: storetest.Day.UnixMicro() + (perDay-1)*1e6},
		{Name: "2026-11-23/0000000001-1.parquet", Bloom: "2026-11-23/0000000001-1.bloom", Segment: 1, Schema: 1, Format: manifest.FileFormat, Day: "2026-11-23", Rows: 1000, Log: 1, MinTime: storetest.Day.UnixMicro() + perDay*1e6, MaxTime: storetest.Day.UnixMicro() + (perDay+999)*1e6},
	} {
		got := *table.Files[i]
		info, err := os.Stat(table.Path(f.Path, got.Name))
		if err != nil || info.Size() != got.Bytes {
			t.Errorf("%s has %d bytes on disk: %v", got.Name, info.Size(), err)
		}
		if got.GroupBytes <= 0 {
			t.Errorf("%s: %d bytes in a row group", got.Name, got.GroupBytes)
		}
		got.Bytes, got.GroupBytes, got.GroupRows = 0, 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("file %d (-want +got):\n%s", i, diff)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.Path, "temp", "seal-*", "*")); len(left) > 0 {
		t.Errorf("got temporary files %q, want none", left)
	}
	f.Seal(2)
	f.Want(all, before[:0]+f.Ask(all))
	f.AppendFrame(3, storetest.FrameOf(table, 500, storetest.Row(0)))
	f.AppendFrame(3, storetest.FrameOf(table, 10, storetest.Row(2*perDay)))
	f.Seal(3)
	after := f.Ask(all)
	merged := f.Merge(table, []string{table.Files[0].Name, table.Files[3].Name}, []string{table.Files[2].Name, table.Files[4].Name})
	f.Want(all, after)
	if len(merged) != 2 || merged[0].File.Log != 3 || merged[0].File.Rows != 1600 || merged[1].File.Rows != 20 || len(table.Files) != 3 {
		t.Errorf("got %+v and %d files, want two merges, of 1600 and 20 rows, and 3 files", merged, len(table.Files))
	}
}

// TestFileLayout checks that files are sorted by event and time, have stable column ids, and
// store integers as deltas, which are smaller and faster to read.
func TestFileLayout(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 5000, storetest.Row(0)))
	f.Seal(1)
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	path := sqltext.Literal(table.Path(f.Path, table.Files[0].Name))
	for sql, want := range map[string]string{
		`SELECT string_agg(field_id || name, ' ') FROM parquet_schema(` + path + `) WHERE field_id IS NOT NULL`:                                        "2id 3time 4event",
		`SELECT bool_and(compression = 'ZSTD') FROM parquet_metadata(` + path + `)`:                                                                    "true",
		`SELECT string_agg(DISTINCT encodings) FROM parquet_metadata(` + path + `) WHERE path_in_schema = 'id'`:                                        "DELTA_BINARY_PACKED",
		`SELECT count(*) FROM (SELECT event, time, lag((event, time)) OVER () AS before FROM read_parquet(` + path + `)) WHERE before > (event, time)`: "0",
	} {
		rows, err := c.Run(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got := protocol.Text(rows[0][0]); got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
	}
}

// TestRowGroupsOfWideRows writes rows slightly narrower and wider than 4 KiB. The wider ones
// must get smaller row groups.
func TestRowGroupsOfWideRows(t *testing.T) {
	for _, test := range []struct{ width, groupBytes int }{
		{4<<10 - 100, 12 << 20},
		{4<<10 + 100, 4 << 20},
	} {
		f := newFolder(t, sqlclient.Options{})
		table := f.AddTable("events", storetest.Column(5, "text", event.String))
		text := strings.Repeat("x", test.width)
		f.AppendFrame(1, storetest.FrameOf(table, 4000, func(c manifest.Column, v *event.Vector, row int) {
			if c.Name == "text" {
				storetest.AddText(v, text)
				return
			}
			storetest.Row(0)(c, v, row)
		}))
		f.Seal(1)
		got, want := table.Files[0].GroupRows, int64(test.groupBytes/test.width)
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("rows of %d bytes: %d in a row group, want about %d", test.width, got, want)
		}
	}
}

func TestDeletes(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 100, storetest.Row(0)))
	f.Seal(1)
	f.AppendFrame(2, storetest.FrameOf(table, 100, storetest.Row(100)))
	before := wal.Position{File: 2, Offset: f.Ends[1].End}
	f.AppendFrame(2, storetest.FrameOf(table, 100, storetest.Row(0)))
	f.M.NextDelete++
	table.Deletes = append(table.Deletes, &manifest.Delete{Number: 1, Predicate: "id % 10 = 7 -- user", Before: before})
	f.Save()
	f.Want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
	f.Seal(2)
	f.Want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
	recomputed, err := f.client.Recompute(t.Context(), protocol.Recompute{
		Version: f.M.Version, Table: table.ID, File: table.Files[0].Name, Number: 90, Column: 2,
		Call: func(_ context.Context, _ int, documents [][]byte) ([][]byte, error) {
			return make([][]byte, len(documents)), nil
		},
	})
	if err != nil || len(recomputed) != 1 || recomputed[0].Rows != 90 || recomputed[0].Deleted != 1 {
		t.Errorf("recomputed: got %+v and error %v, want one file of 90 rows without those of delete 1", recomputed, err)
	}
	merged := f.Merge(table, []string{table.Files[0].Name, table.Files[1].Name})
	if len(merged) != 1 || merged[0].File.Rows != 280 || merged[0].File.Deleted != 1 {
		t.Fatalf("merged: got %+v, want one file of 280 rows without those of delete 1", merged)
	}
	if merged = f.Merge(table, []string{table.Files[0].Name}); len(merged) != 1 || !merged[0].Unchanged {
		t.Errorf("a file without deleted rows: %+v", merged)
	}
	f.Save()
	f.Want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
}

// mixedRow fills rows of many days, some without a time, with every type and with nulls.
func mixedRow(first int) func(c manifest.Column, v *event.Vector, row int) {
	narrow := storetest.Row(first)
	return func(c manifest.Column, v *event.Vector, row int) {
		id := first + row
		switch {
		case c.Name == "id":
			v.Ints = append(v.Ints, int64(id))
		case c.Name == "time":
			if id%11 == 0 {
				v.Null[row] = 1
			}
			v.Ints = append(v.Ints, storetest.Day.UnixMicro()+int64((id*7919)%(5*86400))*1e6-2*24*time.Hour.Microseconds())
		case c.Name == "event" && id%13 == 0:
			v.Null[row] = 1
			storetest.AddText(v, "")
		case c.Type == event.String && id%7 == 0:
			v.Null[row] = 1
			storetest.AddText(v, "")
		case c.Type == event.Timestamp, c.Type == event.Int64, c.Type == event.Int32, c.Type == event.Bool:
			narrow(c, v, row)
		default:
			narrow(c, v, row)
		}
	}
}

// unsorted counts the rows of each file that precede a row which sorts before them.
func (f *folder) unsorted(table *manifest.Table, order string) (unsorted string) {
	f.T.Helper()
	db, err := duckdb.Open(map[string]string{"threads": "1"})
	if err != nil {
		f.T.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		f.T.Fatal(err)
	}
	for _, file := range table.Files {
		rows, err := c.Run("SELECT count(*) FROM (SELECT create_sort_key(" + order + ") AS key, lag(key) OVER (ORDER BY file_row_number) AS before FROM read_parquet(" +
			sqltext.Literal(table.Path(f.Path, file.Name)) + ", file_row_number = true)) WHERE before > key")
		if err != nil {
			f.T.Fatal(err)
		}
		if n := protocol.Text(rows[0][0]); n != "0" {
			unsorted += fmt.Sprintf("%s: %s\n", file.Name, n)
		}
	}
	return unsorted
}

// TestOrder seals and merges rows of several schema versions, with deletes. Only deleted rows
// may be lost, each day must have its own files, and each file must be sorted.
func TestOrder(t *testing.T) {
	for name, sort := range map[string][]string{
		`event, 'ASC NULLS LAST', "time", 'ASC NULLS LAST'`: nil,
		`id, 'ASC NULLS LAST'`:                              {"id"},
		`"time", 'ASC NULLS LAST', n, 'ASC NULLS LAST'`:     {"time", "n"},
	} {
		t.Run(strings.Join(sort, ","), func(t *testing.T) {
			f := newFolder(t, sqlclient.Options{})
			table := f.AddTable("events", storetest.Column(5, "n", event.Int64), storetest.Column(6, "amount", event.Float64), storetest.Column(7, "flag", event.Bool), storetest.Column(8, "data", event.JSON), storetest.Column(9, "text", event.String), storetest.Column(10, "small", event.Int32))
			table.Sort = sort
			table.NextColumn = 20
			for number := uint64(1); number <= 3; number++ {
				for i := range 5 {
					f.AppendFrame(number, storetest.FrameOf(table, 700, mixedRow(int(number)*10_000+i*700)))
				}
			}
			// n widens to JSON and a column is added: frames of two layouts.
			wider := *table.Current()
			wider.Columns = append([]manifest.Column{}, wider.Columns...)
			wider.Version, wider.Columns[3].Type = 2, event.JSON
			wider.Columns = append(wider.Columns, storetest.Column(11, "late", event.String))
			table.Schemas = append(table.Schemas, &wider)
			f.AppendFrame(3, storetest.FrameOf(table, 900, mixedRow(50_000)))
			f.M.NextDelete = 3
			table.Deletes = []*manifest.Delete{
				{Number: 1, Predicate: "id % 5 = 1", Before: wal.Position{File: 2, Offset: f.Ends[1].End / 2}},
				{Number: 2, Predicate: "id % 5 = 2", Before: wal.Position{File: 3, Offset: f.Ends[2].End / 2}},
			}
			f.Save()
			const all = `SELECT count(*), sum(hash(COLUMNS(*)))::VARCHAR FROM events`
			want := f.Ask(all)
			for number := uint64(1); number <= 3; number++ {
				f.Seal(number)
				f.Want(all, want)
			}
			for _, file := range table.Files {
				if file.Day == "" || file.MinTime > file.MaxTime {
					t.Errorf("got file %+v, want one with a day and with times in order", file)
				}
			}
			if unsorted := f.unsorted(table, name); unsorted != "" {
				t.Errorf("unsorted after sealing:\n%s", unsorted)
			}
			days := map[string][]string{}
			for _, file := range table.Files {
				days[file.Day] = append(days[file.Day], file.Name)
			}
			var groups [][]string
			for _, names := range days {
				groups = append(groups, names)
			}
			f.Merge(table, groups...)
			f.Want(all, want)
			if len(table.Files) != len(days) {
				t.Errorf("got %d files of %d days, want one for each day", len(table.Files), len(days))
			}
			if unsorted := f.unsorted(table, name); unsorted != "" {
				t.Errorf("unsorted after merging:\n%s", unsorted)
			}
		})
	}
}
