//go:build linux

package child

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A call is a filter's view of a system call.
type call struct {
	number, arch uint32
	arguments    [6]uint64
}

// decide runs a filter as the kernel does, and returns its decision about a call.
func decide(t *testing.T, program []unix.SockFilter, c call) uint32 {
	t.Helper()
	data := binary.LittleEndian.AppendUint32(nil, c.number)
	data = binary.LittleEndian.AppendUint32(data, c.arch)
	data = binary.LittleEndian.AppendUint64(data, 0) // instruction pointer
	for _, a := range c.arguments {
		data = binary.LittleEndian.AppendUint64(data, a)
	}
	accumulator := uint32(0)
	for at := 0; at < len(program); at++ {
		switch p := program[at]; p.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = binary.LittleEndian.Uint32(data[p.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			accumulator &= p.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if accumulator == p.K {
				at += int(p.Jt)
			} else {
				at += int(p.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return p.K
		default:
			t.Fatalf("instruction %#x", p.Code)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}

const (
	allowed = unix.SECCOMP_RET_ALLOW
	denied  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// TestFilterDecides checks the decisions of a filter in which rules of all kinds precede and follow
// each other, so that a jump into the middle of another rule would show.
func TestFilterDecides(t *testing.T) {
	plain := Allow(7, 9)
	argument := AllowArgument(20, 2, 5)
	again := AllowArgument(20, 0, 6)
	masked := AllowBits(30, 0, 0xf0, 0x30)
	pointer := Rule{call: 40, conditions: []condition{{argument: 1, isNil: true}}}
	both := Rule{call: 50, conditions: []condition{{argument: 0, mask: ^uint32(0), value: 3}, {argument: 2, isNil: true}}}
	const low32 = 1 << 32
	for i, rules := range [][]Rule{
		{plain[0], argument, again, masked, pointer, both, plain[1]},
		{pointer, both, plain[0], masked, plain[1], argument, again},
		{again, argument, pointer, masked, plain[1], plain[0], both},
	} {
		program := compileFilter(rules)
		for _, c := range []struct {
			number    uint32
			arguments [6]uint64
			want      uint32
		}{
			{7, [6]uint64{}, allowed}, {7, [6]uint64{1, 2, 3, 4, 5, 6}, allowed}, {9, [6]uint64{}, allowed}, {8, [6]uint64{}, denied}, {0, [6]uint64{}, denied},
			{20, [6]uint64{2: 5}, allowed}, {20, [6]uint64{2: 4}, denied}, {20, [6]uint64{1: 5}, denied}, {20, [6]uint64{3: 5}, denied}, {20, [6]uint64{0: 6}, allowed},
			{20, [6]uint64{2: 5 + low32}, allowed}, // the upper half of an argument is ignored
			{30, [6]uint64{0: 0x30}, allowed}, {30, [6]uint64{0: 0xf3f}, allowed}, {30, [6]uint64{0: 0x20}, denied}, {30, [6]uint64{0: 0x70}, denied}, {30, [6]uint64{1: 0x30}, denied},
			{40, [6]uint64{0: 9, 2: 9}, allowed}, {40, [6]uint64{1: 1}, denied}, {40, [6]uint64{1: low32}, denied}, {40, [6]uint64{1: low32 << 31}, denied},
			{50, [6]uint64{0: 3, 1: 9}, allowed}, {50, [6]uint64{0: 3, 2: 1}, denied}, {50, [6]uint64{0: 3, 2: low32}, denied}, {50, [6]uint64{0: 2}, denied}, {50, [6]uint64{}, denied},
			{5, [6]uint64{}, denied}, {6, [6]uint64{}, denied}, {0x30, [6]uint64{0: 0x30}, denied}, {auditArch, [6]uint64{}, denied},
			{unix.SYS_CLONE3, [6]uint64{}, unknown},
		} {
			if got := decide(t, program, call{c.number, auditArch, c.arguments}); got != c.want {
				t.Errorf("%d: call %d with %v: %#x, want %#x", i, c.number, c.arguments, got, c.want)
			}
			if got := decide(t, program, call{c.number, auditArch + 1, c.arguments}); got != unix.SECCOMP_RET_KILL_PROCESS {
				t.Errorf("%d: call %d of another architecture: %#x", i, c.number, got)
			}
		}
	}
}

// TestRunningCalls checks some calls that a confined process may and may not make.
func TestRunningCalls(t *testing.T) {
	program := compileFilter(RunningCalls())
	me := uint64(os.Getpid())
	for _, c := range []struct {
		number    uint32
		arguments [6]uint64
		want      uint32
	}{
		{unix.SYS_READ, [6]uint64{}, allowed}, {unix.SYS_WRITE, [6]uint64{}, allowed}, {unix.SYS_MMAP, [6]uint64{}, allowed}, {unix.SYS_EXIT_GROUP, [6]uint64{}, allowed},
		{unix.SYS_OPENAT, [6]uint64{}, denied}, {unix.SYS_SOCKET, [6]uint64{}, denied}, {unix.SYS_EXECVE, [6]uint64{}, denied}, {unix.SYS_CONNECT, [6]uint64{}, denied},
		{unix.SYS_UNLINKAT, [6]uint64{}, denied}, {unix.SYS_PTRACE, [6]uint64{}, denied}, {unix.SYS_KILL, [6]uint64{}, denied},
		{unix.SYS_CLONE, [6]uint64{unix.CLONE_THREAD | unix.CLONE_VM}, allowed}, {unix.SYS_CLONE, [6]uint64{unix.CLONE_VM}, denied},
		{unix.SYS_TGKILL, [6]uint64{me, 1, 9}, allowed}, {unix.SYS_TGKILL, [6]uint64{me + 1, 1, 9}, denied},
		{unix.SYS_PRLIMIT64, [6]uint64{3: 5}, allowed}, {unix.SYS_PRLIMIT64, [6]uint64{2: 5}, denied}, {unix.SYS_PRLIMIT64, [6]uint64{0: 1, 3: 5}, denied},
		{unix.SYS_FCNTL, [6]uint64{1: unix.F_GETFL}, allowed}, {unix.SYS_FCNTL, [6]uint64{1: unix.F_SETFD}, allowed}, {unix.SYS_FCNTL, [6]uint64{1: unix.F_SETOWN}, denied},
	} {
		if got := decide(t, program, call{c.number, auditArch, c.arguments}); got != c.want {
			t.Errorf("call %d with %v: %#x, want %#x", c.number, c.arguments, got, c.want)
		}
	}
}
