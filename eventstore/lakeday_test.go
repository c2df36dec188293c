//go:build linux && cgo

package eventstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// A simulatedLake is a store with one table in a lake, of which only the manifest exists: files
// are entries with a size.
type simulatedLake struct {
	store  *Store
	m      *manifest.Manifest
	has    map[string]bool // files of the lake
	put    int64           // bytes
	merged int64           // bytes
}

func newSimulatedLake(begun time.Time) *simulatedLake {
	m := manifest.New()
	m.NextTable = 2
	m.Tables = []*manifest.Table{{ID: 1, Name: "events", NextColumn: 3, Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{{ID: 2, Name: "at", Type: event.Timestamp}}}}}}
	m.Tables[0].SetLake(&catalog.Lake{Warehouse: "/lake"})
	m.BeginIncarnation("here", begun)
	return &simulatedLake{store: &Store{unmerged: map[string]bool{}}, m: m, has: map[string]bool{}}
}

func (l *simulatedLake) newFile(bytes int64, sealed time.Time) manifest.File {
	number := l.m.NextSegment
	l.m.NextSegment++
	day := "2026-11-29"
	return manifest.File{
		Name: manifest.FileName(day, number, 0), Segment: number, Schema: 1, Day: day, Rows: bytes / 50, Bytes: bytes, GroupRows: 122_880, GroupBytes: min(bytes, 12<<20),
		Sealed: sealed.Unix(), Open: true,
	}
}

// seal adds a file.
func (l *simulatedLake) seal(bytes int64, now time.Time) {
	f := l.newFile(bytes, now)
	l.m.Tables[0].Files = append(l.m.Tables[0].Files, &f)
}

// maintain does what a store does in a minute: merge and publish.
func (l *simulatedLake) maintain(t *testing.T, now time.Time) {
	t.Helper()
	table := l.m.Tables[0]
	for groups := l.store.nextMerge(table, now); len(groups) > 0; groups = l.store.nextMerge(table, now) {
		for _, group := range groups {
			bytes, gone := int64(0), map[*manifest.File]bool{}
			for _, f := range group {
				bytes += f.Bytes
				gone[f] = true
			}
			l.merged += bytes
			fresh := l.newFile(0, time.Unix(0, 0))
			fresh.Bytes, fresh.GroupBytes = bytes, min(bytes, 12<<20)
			for _, f := range group {
				fresh.Rows += f.Rows
			}
			kept := []*manifest.File{mergedFile(l.m, l.m.Tables[0], fresh, group, fresh.Segment, 0)}
			for _, f := range table.Files {
				if !gone[f] {
					kept = append(kept, f)
				}
			}
			table.Files = kept
		}
	}
	order := publishing.Prepare(l.m, "/store", "first", now)
	if order == nil {
		return
	}
	sizes := map[string]int64{}
	for _, f := range table.Files {
		sizes[table.Path("/store", f.Name)] = f.Bytes
	}
	has := map[string]bool{}
	for _, f := range order.Tables[0].Files {
		if has[f.Name] = true; !l.has[f.Name] {
			size := sizes[f.Path]
			if size == 0 {
				t.Fatalf("the lake lacks %s, which the store does not have either", f.Name)
			}
			l.put += size
		}
	}
	l.has = has
	o := order.Tables[0]
	publishing.Apply(l.m, order, &lake.Report{Tables: []lake.TableReport{{Table: o.Table, UUID: "u", Columns: o.Columns, Covered: o.Step}}}, now)
}

// TestLakeDay simulates a day with a file every ten minutes, and the day after it. Then the lake
// must have few files, and each byte must have been put a few times only.
func TestLakeDay(t *testing.T) {
	const most, mostFiles = 3, 8 // puts of a byte, and files of a day
	worst, files := 0.0, 0
	for _, megabytes := range []int64{1, 3, 6, 12} {
		begun := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
		l := newSimulatedLake(begun)
		kept := int64(0)
		for minute := range 48 * 60 {
			now := begun.Add(time.Duration(minute) * time.Minute)
			if minute%10 == 0 && minute < 24*60 {
				bytes := megabytes<<20 + int64(minute)<<8 // no two of the same size
				l.seal(bytes, now)
				kept += bytes
			}
			l.maintain(t, now)
		}
		ratio := float64(l.put) / float64(kept)
		worst, files = max(worst, ratio), max(files, len(l.has))
		t.Logf("segments of %d MB: %.2f bytes put and %.2f merged per byte kept, %d files", megabytes, ratio, float64(l.merged)/float64(kept), len(l.has))
		if ratio > most || len(l.has) > mostFiles {
			t.Errorf("segments of %d MB: each byte is put %.2f times, and the lake has %d files, want at most %d and %d", megabytes, ratio, len(l.has), most, mostFiles)
		}
	}
	fmt.Printf("figure lake_bytes_put_per_byte_kept %.2f\nfigure lake_files_per_day %d\n", worst, files)
}
