package fileimport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// endlessQuote is a CSV file with a quote that is never closed.
type endlessQuote struct{ begin string }

func (e *endlessQuote) Read(p []byte) (n int, err error) {
	n = copy(p, e.begin)
	e.begin = e.begin[n:]
	for i := range p[n:] {
		p[n+i] = 'x'
	}
	return len(p), nil
}

func TestCSVRecordIsBounded(t *testing.T) {
	rows, err := CSV(&endlessQuote{"a,b\n1,2\n\"x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if row, err := rows.Read(t.Context()); err != nil || string(row.Doc) != `{"a":1,"b":2}` {
		t.Errorf("the row before: %s, %v", row.Doc, err)
	}
	if _, err := rows.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than 64 MiB") {
		t.Errorf("a record without end: %v", err)
	}
}

func TestCompressedFileIsRefused(t *testing.T) {
	for content, want := range map[string]string{"\x1f\x8b\x08rest": "compressed with gzip", "\x28\xb5\x2f\xfdrest": "compressed with zstd", "a,b": "", "": ""} {
		name := filepath.Join(t.TempDir(), "events.csv")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := RefuseCompressed(file); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || event.HintOf(err) == "") {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}
