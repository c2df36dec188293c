package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
)

// TestGrowsAtTheEnd has somebody add to a file of a pattern between the reader's
// finding its end and its noting so: what was added is unread.
func TestGrowsAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := newPattern(source.Env{Limits: source.Limits{Events: 10, Bytes: 1000}}, Config{Path: filepath.Join(filepath.Dir(path), "*.log")})
	if err != nil {
		t.Fatal(err)
	}
	names, err := p.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := p.Open(t.Context(), names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close(t.Context())
	r := opened.(*reader)
	note := r.ended
	r.ended = func(read int64) {
		if err := os.WriteFile(path, []byte("{}\n{}\n"), 0o600); err != nil {
			t.Error(err)
		}
		note(read)
	}
	var b event.Batch
	for err == nil {
		err = r.Read(t.Context(), &b)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if names, err = p.Partitions(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("the file counts as finished: %v, %v", names, err)
	}
}
