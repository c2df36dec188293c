//go:build linux && cgo

package logscan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/frame"
)

// TestLogFileIsGone removes a log file that has grown since a query read it.
func TestLogFileIsGone(t *testing.T) {
	l := NewFiles(t.TempDir())
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

// TestManyFrames opens a log with a frame for each row, as a slow sender leaves it. A new worker
// does so before its first answer, so it may not decode each frame into memory of its own.
func TestManyFrames(t *testing.T) {
	f := storetest.New(t)
	table := f.AddTable("events")
	const frames = 1000
	for i := range frames {
		f.AppendFrame(1, storetest.FrameOf(table, 1, storetest.Row(i)))
	}
	allocations := testing.AllocsPerRun(3, func() {
		v, err := NewFiles(manifest.LogFolder(f.Path)).Open(1, f.Ends)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if n := len(v.Of(table.ID)); n != frames {
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
	f := storetest.New(t)
	f.LogSize = 1 << 16
	table := f.AddTable("events")
	var begins []int64
	for i := range 4 {
		begins = append(begins, wal.FirstFrame)
		if len(f.Ends) > 0 {
			begins[i] = f.Ends[0].End
		}
		f.AppendFrame(1, storetest.FrameOf(table, 2, storetest.Row(10*i)))
	}
	f.AppendFrame(2, storetest.FrameOf(table, 3, storetest.Row(100)))
	f.AppendFrame(3, binary.LittleEndian.AppendUint64(nil, 1<<20))
	unreadable := storetest.FrameOf(table, 3, storetest.Row(100))
	clear(unreadable[frame.PrefixSize+1:])
	f.AppendFrame(4, unreadable)
	long, unread := f.Ends[2], f.Ends[3]
	f.Ends = f.Ends[:2]
	logs := NewFiles(manifest.LogFolder(f.Path))
	view := func(first uint64, ends ...wal.FileEnd) (rows []int) {
		t.Helper()
		v, err := logs.Open(first, ends)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for _, frame := range v.Of(table.ID) {
			for first := range frame.record.Vectors() {
				rows = append(rows, int(first.Ints[0]))
				break
			}
		}
		if len(v.Of(99)) > 0 {
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
		{view(1, f.Ends...), []int{0, 10, 20, 30, 100}},
		{view(1, upTo(1)), []int{0}}, // a query that began earlier sees no more than before
		{view(2, f.Ends...), []int{100}},
		{view(3, f.Ends...), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("rows %v, want %v", test.got, test.want)
		}
	}
	held, err := logs.Open(1, f.Ends)
	if err != nil {
		t.Fatal(err)
	}
	view(2, f.Ends[1])
	checkMapped := func(number uint64, want bool) {
		t.Helper()
		if got := storetest.IsMapped(t, wal.Path(manifest.LogFolder(f.Path), number)); got != want {
			t.Errorf("log file %d is mapped: got %v, want %v", number, got, want)
		}
	}
	checkMapped(1, true) // a query reads it
	checkMapped(2, true)
	held.Close()
	view(2, f.Ends[1])
	checkMapped(1, false)
	checkMapped(2, true)
	damaged := f.Ends[0]
	damaged.Damaged = []wal.Span{{Begin: begins[1], End: begins[3]}}
	if got := view(1, damaged); !slices.Equal(got, []int{0, 30}) {
		t.Errorf("around a damaged part: rows %v", got)
	}
	for name, end := range map[string]wal.FileEnd{
		"is missing":                {Number: 9, End: 4096},
		"has no frame where one is": {Number: 2, End: f.Ends[1].End + 64},
		"is shorter than its end":   {Number: 2, End: 1 << 20},
		"is shorter than a frame":   long,
		"has a frame without sense": unread,
	} {
		if _, err := logs.Open(1, []wal.FileEnd{end}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("read file %d of the log", end.Number)) {
			t.Errorf("a file that %s: %v", name, err)
		}
	}
}
