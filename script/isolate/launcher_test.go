//go:build linux

package isolate

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/leaktest"
	"github.com/perigeedb/perigee/script"
)

// TestNoFilesLeft starts a worker in a process that can open too few files: that is an error, and
// leaves no file open.
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
	for files := range uint64(6) { // its memory, and five of package child
		few := limit
		few.Cur = first + files
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		_, err := startWorker(layout, "")
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

// TestNoRoomForMemory starts a worker in a process whose files may not be as large as
// its memory: that is an error, and leaves no file open. Reading memory beyond the end of its file
// would kill the process.
func TestNoRoomForMemory(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	layout := newLayout(script.Limits{Output: 1 << 20})
	small := limit
	small.Cur = uint64(layout.size()) - 1
	leaktest.Closed(t, "/memfd:perigee-script", func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
			t.Fatal(err)
		}
		p, err := startWorker(layout, "")
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, unix.EFBIG) {
			t.Errorf("error %v, want EFBIG", err)
		}
		if err == nil {
			p.Close()
		}
	})
}

// TestKilledFromOutside distinguishes a worker killed by another process from other ends.
func TestKilledFromOutside(t *testing.T) {
	overTime := errors.New("over its time")
	for _, test := range []struct {
		name, command string
		cause         error
		want          bool
	}{
		{"exit code 0", "exit 0", nil, false},
		{"exit code", "exit 9", nil, false},
		{"another signal", "kill -TERM $$", nil, false},
		{"killed", "kill -KILL $$", nil, true},
		{"killed by the parent", "kill -KILL $$", overTime, false},
		{"ended by itself before the parent killed it", "exit 9", overTime, false},
	} {
		command := exec.Command("sh", "-c", test.command)
		if err := command.Run(); command.ProcessState == nil {
			t.Fatal(err)
		}
		died := &exitError{cause: test.cause, state: command.ProcessState}
		if got := died.killed(); got != test.want {
			t.Errorf("%s: killed from outside: %v", test.name, got)
		}
	}
}
