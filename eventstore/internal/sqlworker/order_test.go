//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/sqltext"
)

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
					t.Errorf("%+v", file)
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
				t.Errorf("%d files of %d days", len(table.Files), len(days))
			}
			if unsorted := f.unsorted(table, name); unsorted != "" {
				t.Errorf("unsorted after merging:\n%s", unsorted)
			}
		})
	}
}
