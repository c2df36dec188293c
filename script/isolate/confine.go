//go:build linux

package isolate

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// heapSlack is what the memory limit leaves for Go's heap beside that of the script: Go
// reserves 64 MiB at a time.
const heapSlack = 128 << 20

// confine takes from the process, before it has any code, what code does not need: environment,
// descriptors, memory beyond a limit, and all system calls but those that compute. mapped is what
// the process has mapped. Only code from a file can read files, until endLoading: those
// that the parent has left to the process when it started it. confine returns what the kernel
// does not offer.
func confine(memory int, mapped uint64, fromFile bool) (missing []string, err error) {
	loadZone()
	os.Clearenv()
	highest, err := child.KeepDescriptors(memoryFile)
	if err != nil {
		return nil, err
	}
	debug.SetMemoryLimit(int64(memory) + heapSlack/2)
	debug.SetMaxStack(memory)
	const runtimeFiles = 8 // that Go's runtime may still open, for its poller
	for _, limit := range []struct {
		name     string
		resource int
		most     uint64
	}{
		{"core dumps", unix.RLIMIT_CORE, 0},
		{"memory", unix.RLIMIT_DATA, mapped + uint64(memory) + heapSlack},
		{"file sizes", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, uint64(highest + runtimeFiles)},
	} {
		if err := child.LimitResource(limit.name, limit.resource, limit.most, limit.most); err != nil {
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

// endLoading takes from the process what loading code from a file needed. That code has run by now,
// and might have prevented it: what it can read then is still what the process was started with.
func endLoading() error {
	if _, err := child.KeepDescriptors(memoryFile); err != nil {
		return err
	}
	_, err := child.FilterCalls(child.RunningCalls())
	return err
}

// fileCalls are what the loader needs to open a library for reading, and endLoading.
func fileCalls() []child.Rule {
	const writing = unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY
	return append(oldFileCalls(), append(child.Allow(unix.SYS_NEWFSTATAT, unix.SYS_READLINKAT),
		child.AllowBits(unix.SYS_OPENAT, 2, writing, unix.O_RDONLY),
		child.AllowArgument(unix.SYS_CLOSE_RANGE, 2, 0),
		child.AllowArgument(unix.SYS_PRCTL, 0, unix.PR_SET_NO_NEW_PRIVS),
		child.AllowArgument(unix.SYS_SECCOMP, 0, unix.SECCOMP_SET_MODE_FILTER),
	)...)
}
