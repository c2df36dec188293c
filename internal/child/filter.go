//go:build linux

package child

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Rule allows a system call if its arguments meet all conditions.
type Rule struct {
	call       uint32
	conditions []condition
}

// A condition requires an argument, counted from 0, to equal value in the bits of mask. isNil
// requires all its bits to be 0.
type condition struct {
	argument int
	mask     uint32
	value    uint32
	isNil    bool
}

// Allow returns rules that allow calls with any arguments.
func Allow(calls ...uint32) (rules []Rule) {
	for _, c := range calls {
		rules = append(rules, Rule{call: c})
	}
	return rules
}

// AllowArgument returns a rule that allows a call if an argument, counted from 0, has a value.
func AllowArgument(call uint32, argument int, value uint32) Rule {
	return AllowBits(call, argument, ^uint32(0), value)
}

// AllowBits returns a rule that allows a call if an argument, counted from 0, has a value in the
// bits of mask.
func AllowBits(call uint32, argument int, mask, value uint32) Rule {
	return Rule{call: call, conditions: []condition{{argument: argument, mask: mask, value: value}}}
}

// RunningCalls returns rules for a Go program that only computes: memory, threads, time, and
// reading and writing open files. All other calls fail with EPERM.
func RunningCalls() []Rule {
	rules := Allow(
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
		// Threads, but not processes.
		AllowBits(unix.SYS_CLONE, 0, unix.CLONE_THREAD, unix.CLONE_THREAD),
		// Signals to itself.
		AllowArgument(unix.SYS_TGKILL, 0, uint32(os.Getpid())),
		// Reading its limits, but not setting them.
		Rule{call: unix.SYS_PRLIMIT64, conditions: []condition{{argument: 0, mask: ^uint32(0)}, {argument: 2, isNil: true}}},
		// File flags, but not the owner of a file's signals.
		AllowArgument(unix.SYS_FCNTL, 1, unix.F_GETFL),
		AllowArgument(unix.SYS_FCNTL, 1, unix.F_SETFL),
		AllowArgument(unix.SYS_FCNTL, 1, unix.F_GETFD),
		AllowArgument(unix.SYS_FCNTL, 1, unix.F_SETFD),
	)
}

// FilterCalls restricts the process to the system calls that the rules allow. This cannot be
// undone, and applies to all threads. Several filters apply together.
func FilterCalls(rules []Rule) (missing []string, err error) {
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
		return []string{"this kernel has no filter for system calls (seccomp): network and files are not closed to the process"}, nil
	}
	return nil, os.NewSyscallError("seccomp", fault)
}

// Instructions of a filter, and offsets in its input.
const (
	load         = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpIfEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	and          = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	stop         = unix.BPF_RET | unix.BPF_K
	numberOffset = 0
	archOffset   = 4
	firstOffset  = 16 // of the first argument; each has eight bytes
	deny         = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// compileFilter compiles the rules to a program for the kernel.
func compileFilter(rules []Rule) []unix.SockFilter {
	program := []unix.SockFilter{
		{Code: load, K: archOffset},
		{Code: jumpIfEqual, K: auditArch, Jt: 1},
		{Code: stop, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
	for _, r := range rules {
		program = append(program, compileRule(r)...)
	}
	// glibc creates threads with clone3, whose flags a filter cannot read. It falls back to clone
	// if the kernel does not have clone3.
	return append(program,
		unix.SockFilter{Code: load, K: numberOffset},
		unix.SockFilter{Code: jumpIfEqual, K: unix.SYS_CLONE3, Jf: 1},
		unix.SockFilter{Code: stop, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: stop, K: deny})
}

// compileRule compiles one rule. Calls that it does not allow continue after it.
func compileRule(r Rule) []unix.SockFilter {
	var checks []unix.SockFilter
	for _, c := range r.conditions {
		low := uint32(firstOffset + 8*c.argument)
		if c.isNil {
			checks = append(checks, unix.SockFilter{Code: load, K: low + 4}, unix.SockFilter{Code: jumpIfEqual, K: 0},
				unix.SockFilter{Code: load, K: low}, unix.SockFilter{Code: jumpIfEqual, K: 0})
			continue
		}
		checks = append(checks, unix.SockFilter{Code: load, K: low}, unix.SockFilter{Code: and, K: c.mask}, unix.SockFilter{Code: jumpIfEqual, K: c.value})
	}
	program := append([]unix.SockFilter{{Code: load, K: numberOffset}, {Code: jumpIfEqual, K: r.call}}, checks...)
	for i := range program { // a failed check jumps past the last instruction
		if program[i].Code == jumpIfEqual {
			program[i].Jf = uint8(len(program) - i)
		}
	}
	return append(program, unix.SockFilter{Code: stop, K: unix.SECCOMP_RET_ALLOW})
}
