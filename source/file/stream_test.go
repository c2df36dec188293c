package file_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/file"
)

// stdin puts a pipe in the place of standard input and returns where to write.
func stdin(t *testing.T) *os.File {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = in
	t.Cleanup(func() {
		os.Stdin = was
		_ = in.Close()
		_ = out.Close()
	})
	return out
}

func send(t *testing.T, out *os.File, text string) {
	t.Helper()
	if _, err := out.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestStandardInput(t *testing.T) {
	defer goleak.VerifyNone(t)
	out := stdin(t)
	s := newSource(t, file.Config{Path: "-"}, source.Limits{Events: 2, Bytes: 1 << 20})
	r := open(t, s, nil)
	send(t, out, "a\nb\nc\n")
	for _, want := range []string{"0:a 1:b", "2:c"} {
		// The second batch is not full, and nothing more comes for now.
		if got, err := read(t, r); err != nil || strings.Join(got, " ") != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	if err := r.Ack(t.Context(), event.Range{First: 1, Count: 1}); err != nil {
		t.Fatal(err)
	}
	send(t, out, "d\n\ne")
	_ = out.Close()
	again := readAll(t, open(t, s, nil))
	if diff := cmp.Diff([]string{"0:a", "2:c", "3:d", "5:e"}, again); diff != "" {
		t.Errorf("the reader after: %s", diff)
	}
	last := readAll(t, open(t, s, event.Ranges{{First: 0, Count: 3}}))
	if diff := cmp.Diff([]string{"3:d", "5:e"}, last); diff != "" {
		t.Errorf("the reader after that, with done ranges: %s", diff)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestStandardInputCanBeCancelled(t *testing.T) {
	defer goleak.VerifyNone(t)
	out := stdin(t)
	s := newSource(t, file.Config{Path: "-"}, usual)
	r := open(t, s, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var b event.Batch
	if err := r.Read(ctx, &b); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("read %v, want the context's error", err)
	}
	send(t, out, "a\n")
	if got, err := read(t, r); err != nil || len(got) != 1 || got[0] != "0:a" {
		t.Errorf("after a cancelled read: %q, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestNamedPipeIsAStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(path, []byte("a\nb\n"), 0) }()
	s := newSource(t, file.Config{Path: path}, usual)
	names, err := s.Partitions(t.Context())
	if err != nil || !strings.HasPrefix(names[0], "stream-") {
		t.Fatalf("partitions %q, %v", names, err)
	}
	if got := readAll(t, open(t, s, nil)); len(got) != 2 {
		t.Errorf("read %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
