//go:build linux && cgo && !race

package sqlworker

// The race detector's own memory would count towards the writer's.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// TestManyKeys seals rows with more distinct sort keys than the sorter holds at a time. They
// become several files.
func TestManyKeys(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	filler := strings.Repeat("x", 400)
	const commits, rows = 10, 5000
	for i := range commits {
		f.appendFrame(1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			if c.Name == "event" {
				addText(v, fmt.Sprint(i*rows+row, filler))
				return
			}
			testRow(i*rows)(c, v, row)
		}))
	}
	const all = `SELECT count(*), sum(id), count(DISTINCT event), sum(hash(event)) FROM events`
	want := f.ask(all)
	p := watchPeaks(f.client)
	f.seal(1)
	p.check(t)
	f.want(all, want)
	if len(table.Files) < 2 {
		t.Errorf("%d files", len(table.Files))
	}
	if unsorted := f.unsorted(table, `event, 'ASC NULLS LAST', "time", 'ASC NULLS LAST'`); unsorted != "" {
		t.Error(unsorted)
	}
}
