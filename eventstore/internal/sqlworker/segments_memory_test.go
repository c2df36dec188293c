//go:build linux && cgo && !race

package sqlworker

// The race detector's own memory would count towards the writer's.

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestWritersMemory seals log files and merges the results concurrently, with rows of many
// widths. Neither worker may exceed its memory.
func TestWritersMemory(t *testing.T) {
	for _, wide := range []struct {
		bytes, rows, commit int
		lake                bool // larger row groups
	}{
		{200, 50_000, 2000, false},
		{10_000, 800, 100, false},
		{1 << 20, 8, 2, false},
		{9 << 20, 1, 1, false},
		{200, 50_000, 2000, true},
	} {
		t.Run(fmt.Sprint(wide.bytes, wide.lake), func(t *testing.T) {
			f := newFolder(t, sqlclient.Options{})
			table := f.AddTable("events", storetest.Column(5, "text", event.String), storetest.Column(6, "data", event.JSON))
			if wide.lake {
				table.Lake = &manifest.Lake{}
				f.Save()
			}
			const files = 5
			for number := range uint64(files) {
				for first := 0; first < wide.rows; first += wide.commit {
					f.AppendFrame(number+1, storetest.FrameOf(table, wide.commit, wideRow((int(number)*wide.rows+first)%80_000, wide.bytes)))
				}
			}
			const all = `SELECT count(*), sum(id), sum(length(text)), sum(hash(text)), sum(hash(data)) FROM events`
			want := f.Ask(all)
			for range 4 {
				f.Seal(f.M.LogStart)
			}
			if table.Files[0].Open != wide.lake {
				t.Errorf("written for a lake: got %v, want %v", table.Files[0].Open, wide.lake)
			}
			peaks := watchPeaks(f.client)
			var sealing sync.WaitGroup
			sealed := make(chan error, 1)
			end := f.Ends[4]
			version, number := f.M.Version, f.M.NextSegment
			f.M.NextSegment++
			sealing.Go(func() {
				_, err := f.client.WriteSegment(t.Context(), protocol.Segment{Version: version, Log: end, Number: number})
				sealed <- err
			})
			group := table.Files
			for group[0].ReadMemory()*int64(len(group)) > 48<<20 && len(group) > 1 || group[0].RowBytes() > 256<<10 && len(group) > 1 {
				group = group[:len(group)-1]
			}
			t.Logf("a merge of %d files with row groups of %d KiB and %d rows", len(group), group[0].GroupBytes>>10, group[0].GroupRows)
			var names []string
			for _, file := range group {
				names = append(names, file.Name)
			}
			merged := f.Merge(table, names)
			if err := <-sealed; err != nil {
				t.Error(err)
			}
			sealing.Wait()
			peaks.check(t)
			if len(names) > 1 && merged[0].File.Rows != int64(len(names)*wide.rows) {
				t.Errorf("got %+v, want a file of all %d rows", merged, len(names)*wide.rows)
			}
			f.Want(all, want)
		})
	}
}

// TestManyKeys seals rows with more distinct sort keys than the sorter holds at a time. They
// become several files.
func TestManyKeys(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	filler := strings.Repeat("x", 400)
	const commits, rows = 10, 5000
	for i := range commits {
		f.AppendFrame(1, storetest.FrameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			if c.Name == "event" {
				storetest.AddText(v, fmt.Sprint(i*rows+row, filler))
				return
			}
			storetest.Row(i*rows)(c, v, row)
		}))
	}
	const all = `SELECT count(*), sum(id), count(DISTINCT event), sum(hash(event)) FROM events`
	want := f.Ask(all)
	p := watchPeaks(f.client)
	f.Seal(1)
	p.check(t)
	f.Want(all, want)
	if len(table.Files) < 2 {
		t.Errorf("got %d files, want at least 2", len(table.Files))
	}
	if unsorted := f.unsorted(table, `event, 'ASC NULLS LAST', "time", 'ASC NULLS LAST'`); unsorted != "" {
		t.Errorf("got files with rows that precede smaller ones, want none:\n%s", unsorted)
	}
}
