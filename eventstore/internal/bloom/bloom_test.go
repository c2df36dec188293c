//go:build linux && cgo

package bloom

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

func TestBloomFilter(t *testing.T) {
	filter := newBloomFilter(100_000)
	for i := range 100_000 {
		filter.add(Hash(fmt.Sprint("key-", i)))
	}
	wrong := 0
	for i := range 100_000 {
		if !filter.mayContain(Hash(fmt.Sprint("key-", i))) {
			t.Fatalf("key-%d is not found", i)
		}
		if filter.mayContain(Hash(fmt.Sprint("other-", i))) {
			wrong++
		}
	}
	if wrong > 50 {
		t.Errorf("%d of 100,000 are taken for others", wrong)
	}
}

// TestRangesOfRowGroups finds the row groups that may have given values, in as few ranges as
// possible.
func TestRangesOfRowGroups(t *testing.T) {
	filter := func(values ...string) bloomFilter {
		f := newBloomFilter(len(values))
		for _, v := range values {
			f.add(Hash(v))
		}
		return f
	}
	file := &bloomFile{groups: []int64{10, 10, 5}, filters: map[int32][]bloomFilter{
		2: {filter("a"), filter("b"), filter("a", "b")}, 3: {filter("x"), filter("x"), filter("y")},
	}}
	for _, test := range []struct {
		wanted map[int32][]string
		want   []RowRange
	}{
		{nil, []RowRange{{0, 25}}},
		{map[int32][]string{2: {"a"}}, []RowRange{{0, 10}, {20, 25}}},
		{map[int32][]string{2: {"b"}}, []RowRange{{10, 25}}},
		{map[int32][]string{2: {"a", "b"}}, []RowRange{{0, 25}}},
		{map[int32][]string{2: {"none"}}, nil},
		{map[int32][]string{2: {"a"}, 3: {"x"}}, []RowRange{{0, 10}}},
		{map[int32][]string{2: {"b"}, 3: {"y"}}, []RowRange{{20, 25}}},
		{map[int32][]string{9: {"a"}}, []RowRange{{0, 25}}}, // a column without filters
	} {
		hashes := map[int32][]uint64{}
		for id, values := range test.wanted {
			for _, v := range values {
				hashes[id] = append(hashes[id], Hash(v))
			}
		}
		if got := file.find(hashes); !slices.Equal(got, test.want) {
			t.Errorf("%v: rows %v, want %v", test.wanted, got, test.want)
		}
	}
}

// TestClosedBlooms checks that filters of removed files are unmapped, and that a file that cannot be
// read is read again only after the manifest has changed.
func TestClosedBlooms(t *testing.T) {
	f := storetest.New(t)
	table := f.AddTable("events")
	f.AddFiles(table, 2, 100)
	conn := storetest.OpenConn(t)
	var b Cache
	wanted := map[int32][]uint64{4: {Hash("event-0")}}
	check := func(path string, want []RowRange) {
		t.Helper()
		if got, known := b.Ranges(path, wanted); known != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%s: got rows %v, known %v, want %v", filepath.Base(path), got, known, want)
		}
	}
	checkMapped := func(path string, want bool) {
		t.Helper()
		if got := storetest.IsMapped(t, path); got != want {
			t.Errorf("%s is mapped: got %v, want %v", filepath.Base(path), got, want)
		}
	}
	var paths []string
	for _, file := range table.Files {
		path, err := Write(t.Context(), conn, table, table.Path(f.Path, file.Name))
		if err != nil {
			t.Fatal(err)
		}
		file.Bloom, paths = manifest.BloomName(file.Name), append(paths, path)
		check(path, []RowRange{{0, 100}})
		checkMapped(path, true)
	}
	table.Files = table.Files[1:]
	b.Keep(f.Path, f.M)
	checkMapped(paths[0], false)
	checkMapped(paths[1], true)

	missing := table.Path(f.Path, "missing.bloom")
	unreadable := table.Path(f.Path, "unreadable.bloom")
	if err := os.WriteFile(unreadable, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{missing, unreadable} {
		check(path, nil)
		checkMapped(path, false)
		valid, err := os.ReadFile(paths[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, valid, 0o600); err != nil {
			t.Fatal(err)
		}
		check(path, nil)
		b.Keep(f.Path, f.M)
		check(path, []RowRange{{0, 100}})
	}
	b.Keep(f.Path, f.M)
	checkMapped(missing, false)
	checkMapped(unreadable, false)
	checkMapped(paths[1], true)
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
