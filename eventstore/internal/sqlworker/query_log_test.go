//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestGrowingFile repeatedly queries a growing log file, as on a file system without
// preallocation, also while another query reads its earlier part.
func TestGrowingFile(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.LogSize = 1
	table := f.AddTable("events")
	total := 0
	for _, n := range []int{1, 1, 4000, 10, 9000} {
		f.AppendFrame(1, storetest.FrameOf(table, n, storetest.Row(total)))
		total += n
		reading, err := f.Query(t.Context(), `SELECT id, event FROM events`)
		if err != nil {
			t.Fatal(err)
		}
		f.AppendFrame(1, storetest.FrameOf(table, 2000, storetest.Row(total)))
		f.Want(`SELECT count(*), count(DISTINCT id), max(id) FROM events`, fmt.Sprintf("%d,%[1]d,%d", total+2000, total+1999))
		got := 0
		for reading.Next() {
			got++
		}
		if reading.Err() != nil || got != total {
			t.Errorf("%d rows instead of %d, %v", got, total, reading.Err())
		}
		reading.Close()
		total += 2000
	}
}

// TestTextsAndNulls reads texts of each length, which DuckDB stores in two ways, and nulls at
// every position of a chunk, from frames that are not aligned with chunks.
func TestTextsAndNulls(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "text", event.String), storetest.Column(6, "n", event.Int32), storetest.Column(7, "x", event.Float64), storetest.Column(8, "b", event.Bool))
	alphabet := strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", 3)
	first := 0
	for _, rows := range []int{1, 63, 64, 65, 3000, 2047, 2048, 2049, 7} {
		fill := storetest.Row(first)
		f.AppendFrame(1, storetest.FrameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			id := first + row
			null := id%7 == int(c.ID)%7
			switch c.Name {
			case "text":
				storetest.AddText(v, alphabet[:id%40])
			case "n", "b":
				v.Ints = append(v.Ints, int64(id%2))
			case "x":
				v.Floats = append(v.Floats, float64(id)/4)
			default:
				fill(c, v, row)
				return
			}
			if null {
				v.Null[row] = 1
			}
		}))
		first += rows
	}
	f.Want(`SELECT count(*), count(*) FILTER ((text IS NULL) = (id % 7 = 5)), count(*) FILTER ((n IS NULL) = (id % 7 = 6)), count(*) FILTER ((x IS NULL) = (id % 7 = 0)), count(*) FILTER ((b IS NULL) = (id % 7 = 1)) FROM events`,
		strings.TrimSuffix(strings.Repeat(fmt.Sprint(first, ","), 5), ","))
	if got := f.Ask(`SELECT count(*) FROM events WHERE text <> left($1, id % 40) OR n <> id % 2 OR x <> id / 4 OR b <> (id % 2 = 1)`, protocol.Param{Value: alphabet}); got != "0" {
		t.Errorf("%s rows have other values", got)
	}
	f.Want(`SELECT count(DISTINCT text), min(length(text)), max(length(text)) FROM events`, "40,0,39")
}

// TestGroupsOfFrames reads frames that are each as large as the unit of a thread, or larger.
func TestGroupsOfFrames(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	total := 0
	for _, rows := range []int{logscan.GroupRows, logscan.GroupRows, logscan.GroupRows + 1, logscan.GroupRows - 1, 1, logscan.GroupRows} {
		f.AppendFrame(1, storetest.FrameOf(table, rows, storetest.Row(total)))
		total += rows
		f.Want(`SELECT count(*), count(DISTINCT id), max(id) FROM events`, fmt.Sprintf("%d,%[1]d,%d", total, total-1))
	}
}

// TestFrameOfAnotherType reads frames with column types that differ from the manifest, as in
// a crafted backup. A query and a writer must return an error that names the column, and must
// not crash the worker.
func TestFrameOfAnotherType(t *testing.T) {
	types := []event.Type{event.Bool, event.Int32, event.Int64, event.Float64, event.Decimal, event.String, event.Timestamp, event.JSON, event.TimestampNS, event.Bytes}
	f := newFolder(t, sqlclient.Options{Threads: 2})
	file := uint64(0)
	for _, said := range types {
		for _, stored := range types {
			file++
			f.M.Tables, f.Ends = nil, nil
			table := f.AddTable("events", storetest.Column(5, "odd", said))
			crafted := *table
			crafted.Schemas = []*manifest.Schema{{Version: 1, Columns: slices.Clone(table.Current().Columns)}}
			crafted.Schemas[0].Columns[3].Type = stored
			f.AppendFrame(file, storetest.FrameOf(&crafted, 10, func(c manifest.Column, v *event.Vector, row int) {
				if c.Name == "odd" && c.Type == event.TimestampNS || c.Name == "odd" && c.Type == event.Timestamp {
					v.Ints = append(v.Ints, int64(row))
					return
				}
				storetest.Row(0)(c, v, row)
			}))
			answer, err := storetest.Read(f.Query(t.Context(), `SELECT count(odd), count(DISTINCT odd), min(odd) FROM events WHERE odd IS NOT NULL`))
			_, sealing := f.client.WriteSegment(t.Context(), protocol.Segment{Version: f.M.Version, Log: f.Ends[0], Number: f.M.NextSegment})
			for what, err := range map[string]error{"a query": err, "writing files": sealing} {
				if said == stored && err != nil {
					t.Errorf("%s of type %v: %v", what, said, err)
				}
				if want := fmt.Sprintf("column odd is of type %v in file %d of the log", stored, file); said != stored && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s of type %v that the log has as %v: %s, %v; want %q", what, said, stored, answer, err, want)
				}
			}
		}
	}
}

// TestFilteredRows reads the rows of frames with given values, which the scan filters: texts
// of each length, integers, and nulls, at every position of a chunk.
func TestFilteredRows(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "n", event.Int64))
	first := 0
	for _, rows := range []int{1, 2047, 2048, 2049, 5000} {
		fill := storetest.Row(first)
		f.AppendFrame(1, storetest.FrameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			id := first + row
			switch c.Name {
			case "key":
				storetest.AddText(v, strings.Repeat("k", id%20))
				v.Null[row] = uint8(id / 100 % 2)
			case "n":
				v.Ints = append(v.Ints, int64(id%7-3))
				v.Null[row] = uint8(id / 1000 % 2)
			default:
				fill(c, v, row)
			}
		}))
		first += rows
	}
	for _, where := range []string{
		`key = ''`, `key = 'k'`, `key = 'kkkkkkkkkkkk'`, `key = 'kkkkkkkkkkkkk'`, `key IN ('kkk', 'kkkkkkkkkkkkkkkkkkk', 'x')`, `key = 'x'`, `n = 0`, `n = -3`, `n IN (1, 2, 99)`, `n = 99`,
		`key = 'kk' AND n = 1`, `key IN ('', 'kkkk') AND n IN (-1, 3)`, `id = 0`, `id = ` + fmt.Sprint(first-1), `id IN (0, 1, 2047, 2048, 2049, 4095, 4096, 6145)`,
	} {
		chosen, all := `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE `+where, `SELECT count(*), sum(id), count(n), min(key) FROM events WHERE (`+where+`) OR id = -1`
		if got, want := f.Ask(chosen), f.Ask(all); got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
}
