//go:build linux

package isolate

import (
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
)

// heapSlack is what the memory limit leaves for Go's heap beside that of the script: Go
// reserves 64 MiB at a time.
const heapSlack = 128 << 20

// confineLoading takes from the process what loading code does not need: network, other
// programs, other processes. It returns what the kernel does not offer.
func confineLoading(memory int) (missing []string, err error) {
	loadZone()
	if err := child.CloseInherited(memoryFile); err != nil {
		return nil, err
	}
	if err := child.LimitResource("core dumps", unix.RLIMIT_CORE, 0, 0); err != nil {
		return nil, err
	}
	debug.SetMemoryLimit(int64(memory) + heapSlack/2)
	debug.SetMaxStack(memory)
	if err := child.LimitMemory(memory+heapSlack, unix.RLIM_INFINITY); err != nil {
		return nil, err
	}
	return child.FilterCalls(append(child.RunningCalls(), loadingCalls()...))
}

// confineRunning takes what running loaded code does not need: files. The limits are
// final.
func confineRunning(memory int) (missing []string, err error) {
	if err := child.LimitMemory(memory+heapSlack, 0); err != nil {
		return nil, err
	}
	if err := child.LimitResource("file sizes", unix.RLIMIT_FSIZE, 0, 0); err != nil {
		return nil, err
	}
	files, err := child.OpenDescriptors()
	if err != nil {
		return nil, err
	}
	const runtimeFiles = 8 // that Go's runtime may still open, for its poller
	most := uint64(slices.Max(files) + runtimeFiles)
	if err := child.LimitResource("open files", unix.RLIMIT_NOFILE, most, most); err != nil {
		return nil, err
	}
	return child.FilterCalls(child.RunningCalls())
}

// loadingCalls are what loading code needs besides: to open a Go plugin, Go writes it to
// a temporary folder and maps it; and the limits are not final yet.
func loadingCalls() []child.Rule {
	return append(oldLoadingCalls(), child.Allow(
		unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT,
		unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_FCHMOD, unix.SYS_FTRUNCATE, unix.SYS_GETCWD, unix.SYS_FSTATFS,
		unix.SYS_PRLIMIT64, unix.SYS_SECCOMP, unix.SYS_PRCTL, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	)...)
}
