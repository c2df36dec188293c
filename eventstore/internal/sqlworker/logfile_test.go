//go:build linux && cgo

package sqlworker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/frame"
)

// TestGrowingFile repeatedly queries a growing log file, as on a file system without
// preallocation, also while another query reads its earlier part.
func TestGrowingFile(t *testing.T) {
	f := newFolder(t, Options{})
	f.logSize = 1
	table := f.addTable("events")
	total := 0
	for _, n := range []int{1, 1, 4000, 10, 9000} {
		f.appendFrame(1, frameOf(table, n, testRow(total)))
		total += n
		reading, err := f.query(t.Context(), `SELECT id, event FROM events`)
		if err != nil {
			t.Fatal(err)
		}
		f.appendFrame(1, frameOf(table, 2000, testRow(total)))
		f.want(`SELECT count(*), count(DISTINCT id), max(id) FROM events`, fmt.Sprintf("%d,%[1]d,%d", total+2000, total+1999))
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
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "text", event.String), column(6, "n", event.Int32), column(7, "x", event.Float64), column(8, "b", event.Bool))
	alphabet := strings.Repeat("abcdefghijklmnopqrstuvwxyz0123456789", 3)
	first := 0
	for _, rows := range []int{1, 63, 64, 65, 3000, 2047, 2048, 2049, 7} {
		fill := testRow(first)
		f.appendFrame(1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			id := first + row
			null := id%7 == int(c.ID)%7
			switch c.Name {
			case "text":
				addText(v, alphabet[:id%40])
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
	f.want(`SELECT count(*), count(*) FILTER ((text IS NULL) = (id % 7 = 5)), count(*) FILTER ((n IS NULL) = (id % 7 = 6)), count(*) FILTER ((x IS NULL) = (id % 7 = 0)), count(*) FILTER ((b IS NULL) = (id % 7 = 1)) FROM events`,
		strings.TrimSuffix(strings.Repeat(fmt.Sprint(first, ","), 5), ","))
	if got := f.ask(`SELECT count(*) FROM events WHERE text <> left($1, id % 40) OR n <> id % 2 OR x <> id / 4 OR b <> (id % 2 = 1)`, protocol.Param{Value: alphabet}); got != "0" {
		t.Errorf("%s rows have other values", got)
	}
	f.want(`SELECT count(DISTINCT text), min(length(text)), max(length(text)) FROM events`, "40,0,39")
}

// TestGroupsOfFrames reads frames that are each as large as the unit of a thread, or larger.
func TestGroupsOfFrames(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	total := 0
	for _, rows := range []int{groupRows, groupRows, groupRows + 1, groupRows - 1, 1, groupRows} {
		f.appendFrame(1, frameOf(table, rows, testRow(total)))
		total += rows
		f.want(`SELECT count(*), count(DISTINCT id), max(id) FROM events`, fmt.Sprintf("%d,%[1]d,%d", total, total-1))
	}
}

// TestWithin checks the boundaries of the rows that a query's bounds exclude.
func TestWithin(t *testing.T) {
	all := selection{
		files:  []*manifest.File{{MinTime: 10, MaxTime: 20}},
		frames: []*logFrame{{minTime: 10, maxTime: 20}},
	}
	for _, test := range []struct {
		min, max int64
		want     int
	}{{20, 30, 1}, {21, 30, 0}, {0, 10, 1}, {0, 9, 0}, {12, 13, 1}, {0, 100, 1}, {math.MinInt64, math.MaxInt64, 1}, {10, 10, 1}, {20, 20, 1}} {
		got := all.within(&manifest.Table{Time: "time"}, bounds{min: test.min, max: test.max})
		if len(got.files) != test.want || len(got.frames) != test.want {
			t.Errorf("from %d to %d: %d files and %d frames", test.min, test.max, len(got.files), len(got.frames))
		}
	}
	if got := all.within(&manifest.Table{}, bounds{min: 50, max: 60}); len(got.files) != 1 || len(got.frames) != 1 {
		t.Error("a table without a time column has bounds")
	}
}

// TestLogFileIsGone removes a log file that has grown since a query read it.
func TestLogFileIsGone(t *testing.T) {
	l := newLogFiles(t.TempDir())
	path := wal.Path(l.folder, 1)
	if err := os.WriteFile(path, make([]byte, wal.FirstFrame), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(wal.FileEnd{Number: 1, End: wal.FirstFrame}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(wal.FileEnd{Number: 1, End: wal.FirstFrame}); err != nil {
		t.Errorf("read what is mapped: %v", err)
	}
	for _, number := range []uint64{1, 2} {
		if _, err := l.read(wal.FileEnd{Number: number, End: wal.FirstFrame + 100}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read of file %d: %v", number, err)
		}
	}
}

// TestFrameOfAnotherType reads frames with column types that differ from the manifest, as in
// a crafted backup. A query and a writer must return an error that names the column, and must
// not crash the worker.
func TestFrameOfAnotherType(t *testing.T) {
	types := []event.Type{event.Bool, event.Int32, event.Int64, event.Float64, event.Decimal, event.String, event.Timestamp, event.JSON, event.TimestampNS, event.Bytes}
	f := newFolder(t, Options{Threads: 2})
	file := uint64(0)
	for _, said := range types {
		for _, stored := range types {
			file++
			f.m.Tables, f.ends = nil, nil
			table := f.addTable("events", column(5, "odd", said))
			crafted := *table
			crafted.Schemas = []*manifest.Schema{{Version: 1, Columns: slices.Clone(table.Current().Columns)}}
			crafted.Schemas[0].Columns[3].Type = stored
			f.appendFrame(file, frameOf(&crafted, 10, func(c manifest.Column, v *event.Vector, row int) {
				if c.Name == "odd" && c.Type == event.TimestampNS || c.Name == "odd" && c.Type == event.Timestamp {
					v.Ints = append(v.Ints, int64(row))
					return
				}
				testRow(0)(c, v, row)
			}))
			answer, err := read(f.query(t.Context(), `SELECT count(odd), count(DISTINCT odd), min(odd) FROM events WHERE odd IS NOT NULL`))
			_, sealing := f.client.WriteSegment(t.Context(), protocol.Segment{Version: f.m.Version, Log: f.ends[0], Number: f.m.NextSegment})
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

// TestManyFrames opens a log with a frame for each row, as a slow sender leaves it. A new worker
// does so before its first answer, so it may not decode each frame into memory of its own.
func TestManyFrames(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	const frames = 1000
	for i := range frames {
		f.appendFrame(1, frameOf(table, 1, testRow(i)))
	}
	allocations := testing.AllocsPerRun(3, func() {
		v, err := newLogFiles(manifest.LogFolder(f.path)).open(1, f.ends)
		if err != nil {
			t.Fatal(err)
		}
		defer v.close()
		if n := len(v.of(table.ID)); n != frames {
			t.Errorf("got %d frames, want %d", n, frames)
		}
	})
	if allocations > 2*frames {
		t.Errorf("got %.0f allocations for %d frames, want at most %d", allocations, frames, 2*frames)
	}
}

// TestLogFiles reads frames around damaged parts, up to an end and not beyond, and closes
// unused files.
func TestLogFiles(t *testing.T) {
	f := newFolder(t, Options{})
	f.logSize = 1 << 16
	table := f.addTable("events")
	var begins []int64
	for i := range 4 {
		begins = append(begins, wal.FirstFrame)
		if len(f.ends) > 0 {
			begins[i] = f.ends[0].End
		}
		f.appendFrame(1, frameOf(table, 2, testRow(10*i)))
	}
	f.appendFrame(2, frameOf(table, 3, testRow(100)))
	f.appendFrame(3, binary.LittleEndian.AppendUint64(nil, 1<<20))
	unreadable := frameOf(table, 3, testRow(100))
	clear(unreadable[frame.PrefixSize+1:])
	f.appendFrame(4, unreadable)
	long, unread := f.ends[2], f.ends[3]
	f.ends = f.ends[:2]
	logs := newLogFiles(manifest.LogFolder(f.path))
	view := func(first uint64, ends ...wal.FileEnd) (rows []int) {
		t.Helper()
		v, err := logs.open(first, ends)
		if err != nil {
			t.Fatal(err)
		}
		defer v.close()
		for _, frame := range v.of(table.ID) {
			for first := range frame.record.Vectors() {
				rows = append(rows, int(first.Ints[0]))
				break
			}
		}
		if len(v.of(99)) > 0 {
			t.Error("a table that is not there has frames")
		}
		return rows
	}
	upTo := func(n int) wal.FileEnd { return wal.FileEnd{Number: 1, End: begins[n]} }
	for _, test := range []struct {
		got, want []int
	}{
		{view(1, upTo(0)), nil},
		{view(1, upTo(2)), []int{0, 10}},
		{view(1, f.ends...), []int{0, 10, 20, 30, 100}},
		{view(1, upTo(1)), []int{0}}, // a query that began earlier sees no more than before
		{view(2, f.ends...), []int{100}},
		{view(3, f.ends...), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("rows %v, want %v", test.got, test.want)
		}
	}
	held, err := logs.open(1, f.ends)
	if err != nil {
		t.Fatal(err)
	}
	view(2, f.ends[1])
	if len(logs.files) != 2 {
		t.Errorf("%d files are mapped while a query reads both", len(logs.files))
	}
	held.close()
	view(2, f.ends[1])
	if len(logs.files) != 1 || logs.files[2] == nil {
		t.Errorf("%d files are mapped, and one is listed", len(logs.files))
	}
	damaged := f.ends[0]
	damaged.Damaged = []wal.Span{{Begin: begins[1], End: begins[3]}}
	if got := view(1, damaged); !slices.Equal(got, []int{0, 30}) {
		t.Errorf("around a damaged part: rows %v", got)
	}
	for name, end := range map[string]wal.FileEnd{
		"is missing":                {Number: 9, End: 4096},
		"has no frame where one is": {Number: 2, End: f.ends[1].End + 64},
		"is shorter than its end":   {Number: 2, End: 1 << 20},
		"is shorter than a frame":   long,
		"has a frame without sense": unread,
	} {
		if _, err := logs.open(1, []wal.FileEnd{end}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("read file %d of the log", end.Number)) {
			t.Errorf("a file that %s: %v", name, err)
		}
	}
}
