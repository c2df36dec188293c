//go:build linux && cgo

package bloom

import (
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	for values, bytes := range map[int]int{0: 32, 10: 32, 11: 64, 21: 64, 22: 96, 16_384: 32 * 1537} {
		if got := len(newBloomFilter(values)); got != bytes {
			t.Errorf("a filter of %d values has %d bytes, want %d", values, got, bytes)
		}
	}
}

// TestClosedBlooms checks that filters of removed files are unmapped.
func TestClosedBlooms(t *testing.T) {
	f := storetest.New(t)
	table := f.AddTable("events")
	f.AddFiles(table, 2, 100)
	conn := storetest.OpenConn(t)
	var b Cache
	for _, file := range table.Files {
		path, err := Write(t.Context(), conn, table, table.Path(f.Path, file.Name))
		if err != nil {
			t.Fatal(err)
		}
		file.Bloom = manifest.BloomName(file.Name)
		if ranges, known := b.Ranges(path, map[int32][]uint64{4: {Hash("event-0")}}); !known || !slices.Equal(ranges, []RowRange{{0, 100}}) {
			t.Errorf("%s: rows %v, %v, want all", path, ranges, known)
		}
	}
	if len(b.files) != 2 || b.files[table.Path(f.Path, table.Files[0].Bloom)].mapped == nil {
		t.Fatalf("%d files are mapped", len(b.files))
	}
	table.Files = table.Files[1:]
	b.Keep(f.Path, f.M)
	if len(b.files) != 1 || b.files[table.Path(f.Path, table.Files[0].Bloom)] == nil {
		t.Errorf("%d files are mapped, and one is there", len(b.files))
	}
	missing := table.Path(f.Path, "nothing.bloom")
	if got := b.open(missing); got == nil || len(got.groups) > 0 || got.mapped != nil {
		t.Errorf("a file that is missing: %+v", got)
	}
	if err := os.WriteFile(missing, []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.open(missing); len(got.groups) > 0 {
		t.Error("what cannot be read is looked at again")
	}
	b.Keep(f.Path, f.M)
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
