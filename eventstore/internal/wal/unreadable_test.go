package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/internal/powercut"
)

const openLog = "WAL_OPEN" // turns the test's process into one that opens a log twice

// A printer prints the errors of a test in a process that is not one.
type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// openTwice opens a log normally and then read-only, and prints the results and the files
// that stay open. It runs in a separate thread: strace counts calls by thread, and the first
// thread has loaded libraries.
func openTwice(folder string) error {
	runtime.LockOSThread()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		leaktest.Closed(printer{}, folder, func() { err = openTwiceHere(folder) })
		ended <- err
	}()
	return <-ended
}

func openTwiceHere(folder string) error {
	for _, readOnly := range []bool{false, true} {
		visited := 0
		l, err := Open(logFolder(folder), Options{FileSize: 1 << 20, ReadOnly: readOnly}, func(Position, *Entry) error {
			visited++
			return nil
		})
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		fmt.Println("visited", visited, "damage", l.Damage())
		_ = l.Close()
	}
	return os.WriteFile(filepath.Join(folder, "done"), nil, 0o600) // a recording needs a change
}

// TestUnreadable opens a log with a part that the disk cannot read. Even at the end of the
// last file that is damage, and not a torn tail to truncate.
func TestUnreadable(t *testing.T) {
	for n := range powercut.SomeOf(4) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			folder := t.TempDir()
			l := open(t, logFolder(folder), Options{FileSize: 1 << 20})
			for i := range 40 {
				put(t, l, i, 500)
			}
			ends := l.Ends()
			_ = l.Close()
			// Reads 1 and 2 of the file are of its header and its beginMark.
			run := powercut.SelfRun(fmt.Sprintf("pread64:error=EIO:when=%d+", 2+n), openLog+"="+folder)
			said := powercut.Record(t, folder, run).Said()
			if len(said) != 2 || !strings.HasPrefix(said[0], "failed") || !strings.Contains(said[0], "cannot be read") || !strings.Contains(said[0], "input/output error") {
				t.Errorf("the process says %q", said)
			}
			l, visited := reopen(t, nil, logFolder(folder), Options{FileSize: 1 << 20}) // the disk works again
			if len(visited) != 40 || l.Ends()[0].End != ends[0].End {
				t.Errorf("visited %d entries of 40", len(visited))
			}
		})
	}
}

// TestRewriteUnreadable rewrites a commit that cannot be read. It must stay unchanged.
func TestRewriteUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("entry"), 100)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := rewrite(f, 100, 400); !errors.Is(err, syscall.EBADF) {
		t.Errorf("it ends with %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the file holds %q, %v", now, err)
	}
}

// FuzzOpen opens a log with arbitrary content after a header. Open succeeds or reports
// damage, and always succeeds read-only. Entries appended to an opened log exist afterwards.
func FuzzOpen(f *testing.F) {
	folder := f.TempDir()
	positions := build(f, folder, Options{FileSize: 2048}, 4, 3)
	whole, err := os.ReadFile(Path(folder, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[headerSize:], 0, byte(0))
	f.Add(whole[headerSize:], int(positions[1].Offset-headerSize+30), byte(1))
	f.Add(whole[headerSize:], int(positions[2].Offset-headerSize), byte(255))
	f.Fuzz(func(t *testing.T, content []byte, at int, flip byte) {
		folder := t.TempDir()
		content = append(whole[:headerSize:headerSize], content...)
		if at >= 0 && headerSize+at < len(content) {
			content[headerSize+at] ^= flip
		}
		if err := os.WriteFile(Path(folder, 1), content, 0o600); err != nil {
			t.Fatal(err)
		}
		visited := 0
		count := func(Position, *Entry) error { visited++; return nil }
		l, err := Open(folder, Options{FileSize: 2048, ReadOnly: true}, count)
		if err != nil {
			t.Fatalf("read-only: %v", err)
		}
		readable, damage := visited, len(l.Damage())
		_ = l.Close()
		visited = 0
		l, err = Open(folder, Options{FileSize: 2048}, count)
		if _, damaged := errors.AsType[*DamageError](err); damaged != (damage > 0) || err != nil && !damaged {
			t.Fatalf("%d damages, and %v", damage, err)
		}
		if err != nil {
			return
		}
		if visited != readable {
			t.Fatalf("visited %d entries, read-only %d", visited, readable)
		}
		put(t, l, 1000, 1)
		_ = l.Close()
		visited = 0
		if l, err = Open(folder, Options{FileSize: 2048}, count); err != nil || visited != readable+1 {
			t.Fatalf("visited %d entries and one more, and then %d, %v", readable, visited, err)
		}
		_ = l.Close()
	})
}

// TestReadPages reads page by page up to the end of a file, inside a page or at its end.
func TestReadPages(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 10_000, 12_288} {
		content := bytes.Repeat([]byte("12345678"), size/8+1)[:size]
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		w := window{file: file, data: make([]byte, 12_288)}
		if got := w.readPages(0); got != size || !bytes.Equal(w.data[:got], content) {
			t.Errorf("read %d of %d bytes", got, size)
		}
		_ = file.Close()
	}
}

// TestUnknownSize opens a log while the disk does not report the size of a file. That is an
// error.
func TestUnknownSize(t *testing.T) {
	folder := t.TempDir()
	l := open(t, logFolder(folder), Options{FileSize: 1 << 20})
	put(t, l, 0, 1)
	_ = l.Close()
	said := powercut.Record(t, folder, powercut.SelfRun("fstat:error=EIO", openLog+"="+folder)).Said()
	if len(said) != 2 || !strings.HasPrefix(said[0], "failed") || !strings.Contains(said[0], "input/output error") {
		t.Errorf("the process says %q", said)
	}
}
