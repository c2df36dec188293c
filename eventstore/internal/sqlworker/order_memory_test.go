//go:build linux && cgo && !race

package sqlworker

// The race detector's own memory would count towards the writer's.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

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
		t.Errorf("%d files", len(table.Files))
	}
	if unsorted := f.unsorted(table, `event, 'ASC NULLS LAST', "time", 'ASC NULLS LAST'`); unsorted != "" {
		t.Error(unsorted)
	}
}
