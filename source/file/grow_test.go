package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

// TestAppendAtTheEnd appends to a file of a pattern after the reader found its end and
// before it says so: the appended line is read later.
func TestAppendAtTheEnd(t *testing.T) {
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
	onEnd := r.onEnd
	r.onEnd = func(read int64) {
		if err := os.WriteFile(path, []byte("{}\n{}\n"), 0o600); err != nil {
			t.Error(err)
		}
		onEnd(read)
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

// TestFirstLine reads first lines, which identify a file: that of one without an end is whole
// once it has as many bytes as count.
func TestFirstLine(t *testing.T) {
	long := strings.Repeat("x", firstLineMax)
	for _, test := range []struct {
		text, line string
		grows      bool
	}{
		{"", "", true},
		{"a\nb", "a", false},
		{"\n", "", false},
		{long[1:], long[1:], true},
		{long[1:] + "\n", long[1:], false},
		{long, long, false},
		{long + "y\n", long, false},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(test.text); err != nil {
			t.Fatal(err)
		}
		line, grows, err := readFirstLine(f, format.Format{})
		if string(line) != test.line || grows != test.grows || err != nil {
			t.Errorf("of %d bytes: a line of %d bytes that grows: %v, %v; want %d, %v", len(test.text), len(line), grows, err, len(test.line), test.grows)
		}
	}
}
