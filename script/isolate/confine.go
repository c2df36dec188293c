//go:build linux

package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// heapSlack is what the memory limit leaves for Go's heap beside that of the script: Go
// reserves 64 MiB at a time.
const heapSlack = 128 << 20

// confineLoading takes from the process what loading code does not need: network, other
// programs, other processes. It returns what the kernel does not offer.
func confineLoading(memory int) (missing []string, err error) {
	loadZone()
	if err := closeInherited(); err != nil {
		return nil, err
	}
	if err := limitResource("core dumps", unix.RLIMIT_CORE, 0, 0); err != nil {
		return nil, err
	}
	debug.SetMemoryLimit(int64(memory) + heapSlack/2)
	debug.SetMaxStack(memory)
	if err := limitMemory(memory+heapSlack, unix.RLIM_INFINITY); err != nil {
		return nil, err
	}
	return filterCalls(append(runningCalls(), loadingCalls()...))
}

// confineRunning takes what running loaded code does not need: files. The limits are
// final.
func confineRunning(memory int) (missing []string, err error) {
	if err := limitMemory(memory+heapSlack, 0); err != nil {
		return nil, err
	}
	if err := limitResource("file sizes", unix.RLIMIT_FSIZE, 0, 0); err != nil {
		return nil, err
	}
	files, err := openDescriptors()
	if err != nil {
		return nil, err
	}
	const runtimeFiles = 8 // that Go's runtime may still open, for its poller
	most := uint64(slices.Max(files) + runtimeFiles)
	if err := limitResource("open files", unix.RLIMIT_NOFILE, most, most); err != nil {
		return nil, err
	}
	return filterCalls(runningCalls())
}

func limitResource(name string, resource int, soft, hard uint64) error {
	var before unix.Rlimit
	err := unix.Prlimit(0, resource, nil, &before)
	if err == nil {
		hard = min(max(soft, hard), before.Max)
		err = unix.Prlimit(0, resource, &unix.Rlimit{Cur: min(soft, hard), Max: hard}, nil)
	}
	if err != nil {
		return fmt.Errorf("limit %s: %w", name, err)
	}
	return nil
}

// limitMemory lets the process map so many bytes more than it has now, of which hard is
// the limit that it can raise it to. RLIMIT_AS bounds nothing, because Go reserves address
// space that it never uses; RLIMIT_DATA counts only what can be written.
func limitMemory(more int, hard uint64) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "\nVmData:")
	now, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseUint(now, 10, 32)
	if err != nil {
		return fmt.Errorf("limit memory: VmData of /proc/self/status: %w", err)
	}
	return limitResource("memory", unix.RLIMIT_DATA, kib<<10+uint64(more), hard)
}

// openDescriptors lists the open files of the process.
func openDescriptors() (all []int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			all = append(all, fd)
		}
	}
	return all, nil
}

// closeInherited closes what the parent left open by mistake. Files of Go's runtime,
// which are anonymous or of the cgroup, stay.
func closeInherited() error {
	files, err := openDescriptors()
	if err != nil {
		return err
	}
	for _, fd := range files {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		if fd <= memoryFile || err != nil || strings.HasPrefix(name, "anon_inode:[event") || strings.HasPrefix(name, "/sys/fs/cgroup/") {
			continue
		}
		_ = unix.Close(fd)
	}
	return nil
}

// A rule allows a system call. With mask, an argument must equal value in the bits of
// mask; a pointer must be nil, in all its bits.
type rule struct {
	call     uint32
	argument int
	mask     uint32
	value    uint32
	pointer  bool
}

func allow(calls ...uint32) (rules []rule) {
	for _, c := range calls {
		rules = append(rules, rule{call: c})
	}
	return rules
}

// runningCalls are what a Go program needs that computes: memory, threads, time, and
// reading and writing what is open. All others fail with EPERM.
func runningCalls() []rule {
	rules := allow(
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_LSEEK, unix.SYS_FSTAT,
		unix.SYS_SENDTO, // Send on the socket
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
		unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRUSAGE,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_UNAME, unix.SYS_GETRANDOM,
		unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL,
	)
	rules = append(rules, oldCalls()...)
	return append(rules,
		// Threads, and no processes.
		rule{call: unix.SYS_CLONE, argument: 0, mask: unix.CLONE_THREAD, value: unix.CLONE_THREAD},
		// Signals to itself.
		rule{call: unix.SYS_TGKILL, argument: 0, mask: ^uint32(0), value: uint32(os.Getpid())},
		// To read limits, and not to set them.
		rule{call: unix.SYS_PRLIMIT64, argument: 2, mask: ^uint32(0), value: 0, pointer: true},
		// Flags of files, and not who gets signals of them.
		rule{call: unix.SYS_FCNTL, argument: 1, mask: ^uint32(0), value: unix.F_GETFL},
		rule{call: unix.SYS_FCNTL, argument: 1, mask: ^uint32(0), value: unix.F_SETFL},
		rule{call: unix.SYS_FCNTL, argument: 1, mask: ^uint32(0), value: unix.F_GETFD},
		rule{call: unix.SYS_FCNTL, argument: 1, mask: ^uint32(0), value: unix.F_SETFD},
	)
}

// loadingCalls are what loading code needs besides: to open a Go plugin, Go writes it to
// a temporary folder and maps it; and the limits are not final yet.
func loadingCalls() []rule {
	return append(oldLoadingCalls(), allow(
		unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_FACCESSAT,
		unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_FCHMOD, unix.SYS_FTRUNCATE, unix.SYS_GETCWD, unix.SYS_FSTATFS,
		unix.SYS_PRLIMIT64, unix.SYS_SECCOMP, unix.SYS_PRCTL, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	)...)
}

// filterCalls lets the process make no system calls but those of the rules. It cannot be
// undone, and holds for all threads. Filters add up.
func filterCalls(rules []rule) (missing []string, err error) {
	if auditArch == 0 {
		return []string{"system calls are not filtered on " + runtime.GOARCH}, nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	program := compileFilter(rules)
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, fault := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	switch fault {
	case 0:
		return nil, nil
	case unix.ENOSYS, unix.EINVAL:
		return []string{"this kernel has no filter for system calls (seccomp): network and files are not closed to the script"}, nil
	}
	return nil, os.NewSyscallError("seccomp", fault)
}

// compileFilter writes the rules as a program for the kernel.
func compileFilter(rules []rule) []unix.SockFilter {
	const (
		load         = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpIfEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		and          = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		stop         = unix.BPF_RET | unix.BPF_K
		numberOffset = 0
		archOffset   = 4
		firstOffset  = 16 // of the arguments, which have eight bytes each
		deny         = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	program := []unix.SockFilter{
		{Code: load, K: archOffset},
		{Code: jumpIfEqual, K: auditArch, Jt: 1},
		{Code: stop, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
	for _, r := range rules {
		program = append(program, unix.SockFilter{Code: load, K: numberOffset})
		if r.mask == 0 {
			program = append(program,
				unix.SockFilter{Code: jumpIfEqual, K: r.call, Jf: 1},
				unix.SockFilter{Code: stop, K: unix.SECCOMP_RET_ALLOW})
			continue
		}
		low := uint32(firstOffset + 8*r.argument)
		if r.pointer {
			program = append(program,
				unix.SockFilter{Code: jumpIfEqual, K: r.call, Jf: 6},
				unix.SockFilter{Code: load, K: low + 4},
				unix.SockFilter{Code: jumpIfEqual, K: 0, Jf: 4})
		} else {
			program = append(program, unix.SockFilter{Code: jumpIfEqual, K: r.call, Jf: 4})
		}
		program = append(program,
			unix.SockFilter{Code: load, K: low},
			unix.SockFilter{Code: and, K: r.mask},
			unix.SockFilter{Code: jumpIfEqual, K: r.value, Jf: 1},
			unix.SockFilter{Code: stop, K: unix.SECCOMP_RET_ALLOW})
	}
	// glibc makes threads with clone3, whose flags no filter can read, unless it is
	// unknown.
	return append(program,
		unix.SockFilter{Code: load, K: numberOffset},
		unix.SockFilter{Code: jumpIfEqual, K: unix.SYS_CLONE3, Jf: 1},
		unix.SockFilter{Code: stop, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: stop, K: deny})
}
