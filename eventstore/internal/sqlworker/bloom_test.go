//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

func TestBloomFilter(t *testing.T) {
	filter := newBloomFilter(100_000)
	for i := range 100_000 {
		filter.add(hashValue(fmt.Sprint("key-", i)))
	}
	wrong := 0
	for i := range 100_000 {
		if !filter.mayContain(hashValue(fmt.Sprint("key-", i))) {
			t.Fatalf("key-%d is not found", i)
		}
		if filter.mayContain(hashValue(fmt.Sprint("other-", i))) {
			wrong++
		}
	}
	if wrong > 50 {
		t.Errorf("%d of 100,000 are taken for others", wrong)
	}
}

func TestBloomFiles(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "key", event.String), column(6, "n", event.Int64))
	table.Bloom = []string{"KEY", "id", "nothing"}
	f.save()
	for i := range uint64(4) {
		f.appendFrame(i+1, frameOf(table, 1000, testRow(int(i)*1000)))
		f.seal(i + 1)
	}
	var b blooms
	chosen := func(wanted map[string][]string) (n int) {
		return len(b.choose(f.path, table, selection{files: table.Files, equal: wanted}).files)
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
	f.want(`SELECT id FROM events WHERE key = 'text 2500'`, "2500")
	f.want(`SELECT id FROM events WHERE id = 17 AND event = 'event-xxxxxxx-7'`, "17")
	f.want(`SELECT count(*) FROM events WHERE key IN ('text 1', 'text 3999', 'x')`, "2")
	f.want(`SELECT count(*) FROM events WHERE key = 'nothing'`, "0")

	// A damaged bloom file excludes nothing.
	path := table.Path(f.path, table.Files[2].Bloom)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	b = blooms{}
	if got := chosen(map[string][]string{"key": {"text"}}); got != 1 {
		t.Errorf("%d files beside a damaged one, want that one", got)
	}
}

// TestRangesOfKeys checks that a query for a key reads only the row groups that may have it.
// For a list of many keys it reads whole files, because DuckDB needs memory for the list in
// each part.
func TestRangesOfKeys(t *testing.T) {
	const rowGroup, events, parts = 2048, 10, 3
	f := newFolder(t, Options{RowGroup: rowGroup})
	table := f.addTable("events", column(5, "part", event.Int64), column(6, "key", event.String))
	table.Bloom = []string{"part", "key"}
	f.save()
	const rows = events * parts * rowGroup // sorted by event; each event has three row groups
	part := func(id int) int { return id * parts / rows }
	f.appendFrame(1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
		if c.Name == "part" {
			v.Ints = append(v.Ints, int64(part(row)))
			return
		}
		testRow(0)(c, v, row)
	}))
	f.seal(1)
	keys := func(n int) (keys []string) { // never two in neighboring row groups
		for i := range n {
			group := 2 * i
			keys = append(keys, fmt.Sprint("text ", (rows/parts*(group%parts)+1000)/10*10+group/parts))
		}
		return keys
	}
	var b blooms
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
		chosen := b.choose(f.path, table, selection{files: table.Files, equal: test.equal})
		if n := len(chosen.rows[table.Files[0]]); n != test.want {
			t.Errorf("%s: %d ranges, want %d", test.name, n, test.want)
		}
	}
	f.want(`SELECT count(*), min(id), max(id) FROM events WHERE part = 1`, fmt.Sprintf("%d,%d,%d", rows/parts, rows/parts, rows/parts*2-1))
	f.want(`SELECT id, part FROM events WHERE key = 'text 4711'`, "4711,0")
	for _, n := range []int{listMax, listMax + 1, rangesMaxOfList, rangesMaxOfList + 1} {
		f.want(`SELECT count(*) FROM events WHERE key IN ('`+strings.Join(keys(n), "', '")+`')`, fmt.Sprint(n))
	}
}

// TestRangesOfRowGroups finds the row groups that may have given values, in as few ranges as
// possible.
func TestRangesOfRowGroups(t *testing.T) {
	filter := func(values ...string) bloomFilter {
		f := newBloomFilter(len(values))
		for _, v := range values {
			f.add(hashValue(v))
		}
		return f
	}
	file := &bloomFile{groups: []int64{10, 10, 5}, filters: map[int32][]bloomFilter{
		2: {filter("a"), filter("b"), filter("a", "b")}, 3: {filter("x"), filter("x"), filter("y")},
	}}
	for _, test := range []struct {
		wanted map[int32][]string
		want   []rowRange
	}{
		{nil, []rowRange{{0, 25}}},
		{map[int32][]string{2: {"a"}}, []rowRange{{0, 10}, {20, 25}}},
		{map[int32][]string{2: {"b"}}, []rowRange{{10, 25}}},
		{map[int32][]string{2: {"a", "b"}}, []rowRange{{0, 25}}},
		{map[int32][]string{2: {"none"}}, nil},
		{map[int32][]string{2: {"a"}, 3: {"x"}}, []rowRange{{0, 10}}},
		{map[int32][]string{2: {"b"}, 3: {"y"}}, []rowRange{{20, 25}}},
		{map[int32][]string{9: {"a"}}, []rowRange{{0, 25}}}, // a column without filters
	} {
		hashes := map[int32][]uint64{}
		for id, values := range test.wanted {
			for _, v := range values {
				hashes[id] = append(hashes[id], hashValue(v))
			}
		}
		if got := file.find(hashes); !slices.Equal(got, test.want) {
			t.Errorf("%v: rows %v, want %v", test.wanted, got, test.want)
		}
	}
	for values, bytes := range map[int]int{0: 32, 10: 32, 11: 64, 21: 64, 22: 96, 16_384: 32 * 1537} {
		if got := len(newBloomFilter(values)); got != bytes {
			t.Errorf("a filter of %d values has %d bytes, want %d", values, got, bytes)
		}
	}
}

// TestClosedBlooms checks that filters of removed files are unmapped.
func TestClosedBlooms(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	f.appendFrame(1, frameOf(table, 100, testRow(0)))
	f.seal(1)
	f.appendFrame(2, frameOf(table, 100, testRow(100)))
	f.seal(2)
	var b blooms
	b.choose(f.path, table, selection{files: table.Files, equal: map[string][]string{"event": {"event--0"}}})
	if len(b.files) != 2 || b.files[table.Path(f.path, table.Files[0].Bloom)].mapped == nil {
		t.Fatalf("%d files are mapped", len(b.files))
	}
	table.Files = table.Files[1:]
	b.keep(f.path, f.m)
	if len(b.files) != 1 || b.files[table.Path(f.path, table.Files[0].Bloom)] == nil {
		t.Errorf("%d files are mapped, and one is there", len(b.files))
	}
	missing := table.Path(f.path, "nothing.bloom")
	if got := b.open(missing); got == nil || len(got.groups) > 0 || got.mapped != nil {
		t.Errorf("a file that is missing: %+v", got)
	}
	if err := os.WriteFile(missing, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.open(missing); len(got.groups) > 0 {
		t.Error("what cannot be read is looked at again")
	}
	b.keep(f.path, f.m)
	if diff := cmp.Diff(1, len(b.files)); diff != "" {
		t.Error(diff)
	}
}

// TestParseBloom parses heads that contradict the filters after them. All filters must be
// rejected.
func TestParseBloom(t *testing.T) {
	for _, test := range []struct {
		head string
		size int
		want int // number of filters
	}{
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[32]},{"ID":3,"Bytes":[64]}]}`, 96, 2},
		{`{"Groups":[7,8],"Columns":[{"ID":2,"Bytes":[32,64]}]}`, 96, 1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[32]},{"ID":3,"Bytes":[64]}]}`, 95, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[32,32]}]}`, 96, -1},
		{`{"Groups":[7,8],"Columns":[{"ID":2,"Bytes":[32]}]}`, 96, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[0]}]}`, 96, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[-32]}]}`, 96, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[33]}]}`, 96, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[16]}]}`, 96, -1},
		{`{"Groups":[7],"Columns":[{"ID":2,"Bytes":[128]}]}`, 96, -1},
		{`{"Groups":`, 96, -1},
		{`{}`, 0, 0},
	} {
		content := append([]byte(test.head+"\n"), make([]byte, test.size)...)
		whole := append(fmt.Appendf(nil, bloomLine, crc32.Checksum(content, castagnoli)), content...)
		_, filters, err := parseBloom(whole)
		if (err != nil) != (test.want < 0) || err == nil && len(filters) != test.want {
			t.Errorf("%s and %d bytes: %d filters, %v", test.head, test.size, len(filters), err)
		}
		for _, wrong := range [][]byte{nil, whole[1:], append([]byte("x"), whole...)} {
			if _, _, err := parseBloom(wrong); err == nil {
				t.Errorf("%.40q was read", wrong)
			}
		}
	}
}
