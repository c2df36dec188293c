//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"testing"

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
	if wrong > 500 {
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

	// A damaged file rules nothing out.
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
