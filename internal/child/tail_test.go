package child

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestTail checks that the beginning and the end of a process's output are kept.
func TestTail(t *testing.T) {
	for _, test := range []struct {
		writes, size int
		whole        bool
	}{{1, 10, true}, {8, 1 << 10, true}, {9, 1 << 10, false}, {100, 1 << 10, false}, {3, 3 << 10, false}, {2, 4 << 10, true}} {
		from, to := io.Pipe()
		tail := readTail(from)
		written := ""
		for i := range test.writes {
			part := fmt.Sprintf("%04d%s", i, strings.Repeat("x", test.size-4))
			written += part
			if _, err := io.WriteString(to, part); err != nil {
				t.Fatal(err)
			}
		}
		_ = to.Close()
		tail.Finish()
		if _, err := from.Read(make([]byte, 1)); err != io.ErrClosedPipe {
			t.Errorf("the stream is open after its end: %v", err)
		}
		got, last := tail.String(), fmt.Sprintf("%04d", test.writes-1)
		switch {
		case test.whole && got != written:
			t.Errorf("of %d times %d bytes %d were kept", test.writes, test.size, len(got))
		case len(got) > tailBytes || len(got) < tailBytes/2 && !test.whole:
			t.Errorf("of %d times %d bytes %d were kept", test.writes, test.size, len(got))
		case !strings.HasPrefix(got, written[:min(len(written), tailBytes/2)]) || !strings.Contains(got, last):
			t.Errorf("of %d times %d bytes the beginning or the end is lost", test.writes, test.size)
		}
	}
	from, to := io.Pipe()
	tail := readTail(from)
	if _, err := io.WriteString(to, " a\xff\n"); err != nil {
		t.Fatal(err)
	}
	tail.Finish() // the writer is still running
	if got := tail.String(); got != "a\uFFFD" {
		t.Errorf("kept %q", got)
	}
	if _, err := to.Write([]byte("b")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the stream is still read: %v", err)
	}
}

func TestCrashLine(t *testing.T) {
	for _, test := range []struct{ report, want string }{
		{"fatal error: runtime: out of memory\n\ngoroutine 1", "fatal error: runtime: out of memory"},
		{"goroutine 1\npanic: no\npanic: again\n", "panic: no"},
		{"SIGSEGV: segmentation violation\r\n", "SIGSEGV: segmentation violation"},
		{"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", "terminate called after throwing an instance of 'std::bad_alloc'"},
		{"runtime: mmap: cannot allocate memory\npanic: no\n", "runtime: mmap: cannot allocate memory"},
		{"worker: no settings", ""}, // a prefix that the caller does not name
		{"a panic: in the middle", ""},
		{"", ""},
		{"panic: " + strings.Repeat("x", 193), "panic: " + strings.Repeat("x", 193)},
		{"panic: " + strings.Repeat("x", 194), "panic: " + strings.Repeat("x", 193)},
		{"panic: " + strings.Repeat("x", 192) + "é", "panic: " + strings.Repeat("x", 192)},
	} {
		tail := readTail(io.NopCloser(strings.NewReader(test.report)))
		tail.Finish()
		if got := tail.CrashLine("terminate called", "runtime: "); got != test.want {
			t.Errorf("%q: got %q, want %q", test.report, got, test.want)
		}
	}
}
