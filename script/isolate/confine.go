//go:build linux

package isolate

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// heapSlack is the memory for Go's heap, in addition to the script's memory limit: Go reserves 64
// MiB at a time.
const heapSlack = 128 << 20

// confine restricts the process before it loads any code: it drops the environment and open
// descriptors, limits memory, and allows only system calls for computing. mapped is the number of
// bytes that the process has mapped. If fromFile, the loader may open files until endLoading is
// called, but only those that the parent has left readable. confine returns the restrictions that
// the kernel does not support.
func confine(memory int, mapped uint64, fromFile bool) (missing []string, err error) {
	loadZone()
	os.Clearenv()
	highest, err := child.KeepDescriptors(memoryFile)
	if err != nil {
		return nil, err
	}
	debug.SetMemoryLimit(int64(memory) + heapSlack/2)
	debug.SetMaxStack(memory)
	const runtimeFiles = 8 // files that Go's runtime may still open, for its poller
	for _, limit := range []struct {
		name     string
		resource int
		max      uint64
	}{
		{"core dumps", unix.RLIMIT_CORE, 0},
		{"memory", unix.RLIMIT_DATA, mapped + uint64(memory) + heapSlack},
		{"file sizes", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, uint64(highest + runtimeFiles)},
	} {
		if err := child.LimitResource(limit.name, limit.resource, limit.max, limit.max); err != nil {
			return nil, err
		}
	}
	if err := child.HideMemory(); err != nil {
		return nil, err
	}
	rules := child.RunningCalls()
	if fromFile {
		rules = append(rules, fileCalls()...)
	}
	return child.FilterCalls(rules)
}

// endLoading withdraws the calls that loading code from a file needed. The code has already run by
// then, and might have prevented this; it still could read only the files left to the process at
// its start.
func endLoading() error {
	if _, err := child.KeepDescriptors(memoryFile); err != nil {
		return err
	}
	_, err := child.FilterCalls(child.RunningCalls())
	return err
}

// fileCalls are the calls with which the loader opens and reads a library, and those of endLoading.
func fileCalls() []child.Rule {
	const writing = unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY
	return append(oldFileCalls(), append(child.Allow(unix.SYS_NEWFSTATAT, unix.SYS_READLINKAT),
		child.AllowBits(unix.SYS_OPENAT, 2, writing, unix.O_RDONLY),
		child.AllowArgument(unix.SYS_CLOSE_RANGE, 2, 0),
		child.AllowArgument(unix.SYS_PRCTL, 0, unix.PR_SET_NO_NEW_PRIVS),
		child.AllowArgument(unix.SYS_SECCOMP, 0, unix.SECCOMP_SET_MODE_FILTER),
	)...)
}
