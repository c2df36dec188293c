//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/bloom"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/eventstore/internal/tableview"
)

func TestBloomFiles(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "n", event.Int64))
	table.Bloom = []string{"KEY", "id", "nothing"}
	f.Save()
	for i := range uint64(4) {
		f.AppendFrame(i+1, storetest.FrameOf(table, 1000, storetest.Row(int(i)*1000)))
		f.Seal(i + 1)
	}
	var b bloom.Cache
	chosen := func(wanted map[string][]string) (n int) {
		return len(tableview.Selection{Files: table.Files, Equal: wanted}.Choose(&b, f.Path, table).Files)
	}
	for _, file := range table.Files {
		if file.Bloom != manifest.BloomName(file.Name) {
			t.Errorf("%s has the bloom file %q", file.Name, file.Bloom)
		}
	}
	for _, test := range []struct {
		column, value string
		want          int
	}{{"key", "text 2500", 1}, {"key", "text", 0}, {"id", "17", 1}, {"event", "event--0", 4}, {"event", "no", 0}, {"n", "5", 4}} {
		if got := chosen(map[string][]string{test.column: {test.value}}); got != test.want {
			t.Errorf("%s = %s: %d files, want %d", test.column, test.value, got, test.want)
		}
	}
	if got := chosen(map[string][]string{"key": {"text 1", "text 3999"}}); got != 2 {
		t.Errorf("two keys are in %d files", got)
	}
	f.Want(`SELECT id FROM events WHERE key = 'text 2500'`, "2500")
	f.Want(`SELECT id FROM events WHERE id = 17 AND event = 'event-xxxxxxx-7'`, "17")
	f.Want(`SELECT count(*) FROM events WHERE key IN ('text 1', 'text 3999', 'x')`, "2")
	f.Want(`SELECT count(*) FROM events WHERE key = 'nothing'`, "0")

	// A damaged bloom file excludes nothing.
	path := table.Path(f.Path, table.Files[2].Bloom)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	b = bloom.Cache{}
	if got := chosen(map[string][]string{"key": {"text"}}); got != 1 {
		t.Errorf("%d files beside a damaged one, want that one", got)
	}
}

// TestRangesOfKeys checks that a query for a key reads only the row groups that may have it.
// For a list of many keys it reads whole files, because DuckDB needs memory for the list in
// each part.
func TestRangesOfKeys(t *testing.T) {
	const rowGroup, events, parts = 16_384, 10, 3 // see segment
	const listMax, rangesMaxOfList = 4, 8         // see tableview
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "part", event.Int64), storetest.Column(6, "key", event.String))
	table.Bloom = []string{"part", "key"}
	f.Save()
	const rows = events * parts * rowGroup // sorted by event; each event has three row groups
	part := func(id int) int { return id * parts / rows }
	f.AppendFrame(1, storetest.FrameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
		switch c.Name {
		case "part":
			v.Ints = append(v.Ints, int64(part(row)))
		case "time": // of one day, so that they are in one file
			v.Ints = append(v.Ints, storetest.Day.Add(time.Duration(row)*time.Millisecond).UnixMicro())
		default:
			storetest.Row(0)(c, v, row)
		}
	}))
	f.Seal(1)
	keys := func(n int) (keys []string) { // never two in neighboring row groups
		for i := range n {
			group := 2 * i
			keys = append(keys, fmt.Sprint("text ", (rows/parts*(group%parts)+1000)/10*10+group/parts))
		}
		return keys
	}
	var b bloom.Cache
	for _, test := range []struct {
		name  string
		equal map[string][]string
		want  int // number of ranges
	}{
		{"one key", map[string][]string{"key": {"text 4711"}}, 1},
		{"no key", map[string][]string{"key": {"text"}}, 0},
		{"a part", map[string][]string{"part": {"1"}}, events},
		{"a part and a key", map[string][]string{"part": {"0"}, "key": {"text 4711"}}, 1},
		{"few keys", map[string][]string{"key": keys(listMax)}, listMax},
		{"as many keys as have parts", map[string][]string{"key": keys(rangesMaxOfList)}, rangesMaxOfList},
		{"many keys", map[string][]string{"key": keys(rangesMaxOfList + 1)}, 0},
	} {
		chosen := tableview.Selection{Files: table.Files, Equal: test.equal}.Choose(&b, f.Path, table)
		if n := len(chosen.Rows[table.Files[0]]); n != test.want {
			t.Errorf("%s: %d ranges, want %d", test.name, n, test.want)
		}
	}
	f.Want(`SELECT count(*), min(id), max(id) FROM events WHERE part = 1`, fmt.Sprintf("%d,%d,%d", rows/parts, rows/parts, rows/parts*2-1))
	f.Want(`SELECT id, part FROM events WHERE key = 'text 4711'`, "4711,0")
	for _, n := range []int{listMax, listMax + 1, rangesMaxOfList, rangesMaxOfList + 1} {
		f.Want(`SELECT count(*) FROM events WHERE key IN ('`+strings.Join(keys(n), "', '")+`')`, fmt.Sprint(n))
	}
}
