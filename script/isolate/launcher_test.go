//go:build linux

package isolate

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/script"
)

// TestNoFilesLeft opens the files of a worker where the process may have too few: that is an
// error, and leaves no file open.
func TestNoFilesLeft(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	free := func() uint64 { // the lowest free descriptor
		t.Helper()
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		return uint64(file.Fd())
	}
	first, layout := free(), newLayout(script.Limits{Output: 1 << 20})
	for files := range uint64(6) {
		few := limit
		few.Cur = first + files
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		_, _, err := openFiles(layout)
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%d files: error %v, want EMFILE", files, err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if now := free(); now != first {
			t.Fatalf("%d files: descriptor %d is free, was %d", files, now, first)
		}
	}
}
