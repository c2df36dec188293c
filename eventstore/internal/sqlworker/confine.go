//go:build linux && cgo

package sqlworker

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/child"
)

// mergeNice is the nice value of a worker that merges, because no caller waits for merges: a change
// of a table interrupts them. Sealing keeps the normal priority: appends wait for it when it falls
// behind.
const mergeNice = 15

// confine drops privileges that a worker does not need: network access, starting programs,
// access to other processes, memory beyond a limit. It also makes the process the first
// choice of the kernel's OOM killer.
func confine(s protocol.Settings) error {
	if err := child.CloseInherited(child.SocketFile); err != nil {
		return err
	}
	if err := child.LimitResource("core dumps", unix.RLIMIT_CORE, 0, 0); err != nil {
		return err
	}
	// If /proc is not writable, the kernel uses its default choice.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	debug.SetMemoryLimit(s.Memory / 4)
	switch s.Role {
	case protocol.SealRole:
		debug.SetMemoryLimit(s.Memory / 2) // it sorts in Go
	case protocol.MergeRole:
		child.LowerPriority("self", mergeNice)
	}
	if err := child.LimitMemory(int(s.Memory)+protocol.MemorySlack, 0); err != nil {
		return err
	}
	if err := child.HideMemory(); err != nil {
		return err
	}
	_, err := child.FilterCalls(append(child.RunningCalls(), fileCalls()...))
	return err
}

// fileCalls returns the system calls for reading the store's files and writing temporary
// files.
func fileCalls() []child.Rule {
	rules := oldFileCalls()
	for _, command := range []uint32{unix.F_SETLK, unix.F_GETLK} { // DuckDB locks the files that it writes
		rules = append(rules, child.AllowArgument(unix.SYS_FCNTL, 1, command))
	}
	rules = append(rules, child.AllowArgument(unix.SYS_MKNODAT, 2, unix.S_IFIFO|0o600)) // pipes, for Parquet
	return append(rules, child.Allow(
		unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
		unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_PWRITE64,
		unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FADVISE64, unix.SYS_GETCWD, unix.SYS_FSTATFS, unix.SYS_STATFS, unix.SYS_SYSINFO,
		unix.SYS_RECVMSG, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
	)...)
}
