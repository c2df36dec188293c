// Package main is a plugin for tests. While it is loaded, and again for each event, it searches for
// data of the engine and the machine, and reports its findings to the test.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// Main reports the findings of init and of a new search.
func Main(map[string]any) (any, error) {
	if kept, isOpen := describe(keptFile); isOpen {
		loading.leak("descriptor kept since loading", kept)
	}
	running := &search{}
	running.everything()
	return map[string]any{"loading": loading.report(), "running": running.report()}, nil
}

// A search counts its attempts and collects its findings.
type search struct {
	attempts int
	leaks    []string
}

func (s *search) leak(what, found string) {
	s.leaks = append(s.leaks, what+": "+strings.ToValidUTF8(found[:min(len(found), 100)], "?"))
}

func (s *search) report() map[string]any {
	return map[string]any{"attempts": s.attempts, "leaks": append([]string{}, s.leaks...)}
}

// try counts an attempt, which fails with an error.
func (s *search) try(what string, err error) {
	s.attempts++
	if err == nil {
		s.leak(what, "it succeeds")
	}
}

// call tries a system call with up to six arguments.
func (s *search) call(what string, number uintptr, args ...uintptr) {
	var six [6]uintptr
	copy(six[:], args)
	_, _, errno := syscall.Syscall6(number, six[0], six[1], six[2], six[3], six[4], six[5])
	s.attempts++
	if errno == 0 {
		s.leak(what, "it succeeds")
	}
}

// keptFile is a descriptor that init opens and does not close.
var keptFile = -1

// loading is the search of init.
var loading = func() *search {
	s := &search{}
	s.everything()
	for _, library := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"} {
		if fd, err := syscall.Open(library, syscall.O_RDONLY, 0); err == nil {
			keptFile = fd
		}
	}
	return s
}()

func (s *search) everything() {
	s.environment()
	s.descriptors()
	s.files()
	s.processes()
	s.system()
	s.sharedMemory()
}

func (s *search) environment() {
	for _, variable := range append(os.Environ(), syscall.Environ()...) {
		s.leak("environment", variable)
	}
	for _, name := range []string{"PERIGEE_TEST_SECRET", "PATH", "HOME", "TMPDIR"} {
		s.attempts++
		if value, found := os.LookupEnv(name); found {
			s.leak("variable "+name, value)
		}
	}
	s.attempts++
}

// describe describes a descriptor. Those of Go's runtime refer to one anonymous file.
func describe(fd int) (what string, isOpen bool) {
	var stat, anonymous syscall.Stat_t
	if fd < 0 || syscall.Fstat(fd, &stat) != nil {
		return "", false
	}
	poller, _, errno := syscall.RawSyscall(syscall.SYS_EPOLL_CREATE1, 0, 0, 0)
	if errno == 0 {
		_ = syscall.Fstat(int(poller), &anonymous)
		_ = syscall.Close(int(poller))
		if stat.Dev == anonymous.Dev && stat.Ino == anonymous.Ino {
			return "", false
		}
	}
	name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
	return fmt.Sprintf("descriptor %d of device %x, file %d, mode %o %s", fd, stat.Dev, stat.Ino, stat.Mode, name), true
}

// descriptors returns all descriptors beyond the five of a worker.
func (s *search) descriptors() {
	for fd := 5; fd < 2000; fd++ {
		s.attempts++
		if what, isOpen := describe(fd); isOpen && fd != keptFile {
			s.leak("descriptor", what)
		}
	}
	for fd := range 3 { // there must be nothing to read
		s.attempts++
		_ = syscall.SetNonblock(fd, true)
		if n, _ := syscall.Read(fd, make([]byte, 10)); n > 0 {
			s.leak("input", fmt.Sprint(n, " bytes"))
		}
		_ = syscall.SetNonblock(fd, false)
	}
}

func (s *search) files() {
	parent := fmt.Sprint("/proc/", os.Getppid(), "/")
	for _, path := range []string{
		"/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/ssl/openssl.cnf", "/proc/version", "/proc/cpuinfo", "/proc/mounts",
		"/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/proc/self/cmdline", "/proc/self/status", "/proc/self/mountinfo",
		"/proc/self/cgroup", "/proc/1/environ", "/proc/1/cmdline", "/sys/kernel/notes", "/dev/mem", "/dev/kmsg", "/dev/zero", "/dev/urandom",
		parent + "environ", parent + "cmdline", parent + "maps", parent + "mem", parent + "status", parent + "stat", parent + "auxv",
		parent + "fd/0", parent + "fd/1", parent + "fd/2", parent + "fd/3", parent + "root/etc/passwd", parent + "cwd/go.mod", "secret", "./secret", "/tmp/perigee-test-secret",
	} {
		s.attempts++
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		content := make([]byte, 100)
		n, _ := syscall.Read(fd, content)
		s.leak("file "+path, string(content[:max(0, n)]))
		_ = syscall.Close(fd)
	}
	for _, path := range []string{parent + "mem", "/proc/self/mem", "/dev/mem", "/dev/null", "/etc/passwd", "/dev/shm", "/tmp", "."} {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
		s.try("write to "+path, err)
		_ = syscall.Close(fd)
	}
	for _, path := range []string{"/", "/etc", "/proc", "/tmp", "/root", "/home", "/var", "/sys", "/dev", ".", parent, parent + "fd", parent + "task", "/proc/self/fd", "/dev/shm", os.TempDir()} {
		entries, err := os.ReadDir(path)
		s.attempts++
		if err == nil {
			s.leak("folder "+path, fmt.Sprint(entries))
		}
	}
	for _, folder := range []string{"/tmp", "/dev/shm", "/var/tmp", ".", "/", os.TempDir()} {
		path := filepath.Join(folder, "perigee-attack")
		s.try("create in "+folder, os.WriteFile(path, []byte("x"), 0o600))
		s.try("make a folder in "+folder, os.Mkdir(path+"-folder", 0o700))
		s.try("make a link in "+folder, os.Symlink("/etc/passwd", path+"-link"))
		s.try("make a pipe in "+folder, syscall.Mkfifo(path+"-pipe", 0o600))
		_, err := syscall.Open(folder, syscall.O_RDWR|0x410000, 0o600) // O_TMPFILE
		s.try("make a file without a name in "+folder, err)
	}
}

func (s *search) processes() {
	parent := uintptr(os.Getppid())
	var local, remote struct {
		base unsafe.Pointer
		size uint64
	}
	word := new(uint64)
	local.base, local.size = unsafe.Pointer(word), 8
	remote.base, remote.size = unsafe.Pointer(uintptr(0x400000)), 8 // the usual start of a program
	s.call("read the parent's memory", processVMReadv, parent, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	s.call("write the parent's memory", processVMReadv+1, parent, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	s.try("trace the parent", syscall.PtraceAttach(int(parent)))
	s.call("open the parent", 434, parent, 0)                                     // pidfd_open
	s.call("take a file of the parent", 438, 3, 0, 0)                             // pidfd_getfd
	s.call("compare with the parent", 312, uintptr(os.Getpid()), parent, 1, 0, 0) // kcmp
	s.try("signal the parent", syscall.Kill(int(parent), 0))
	s.try("signal all", syscall.Kill(-1, 0))
	s.try("signal its group", syscall.Kill(0, 0))
	s.call("fork", syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|1<<63)
	s.try("run a program", syscall.Exec("/bin/true", []string{"true"}, nil))
	var limit [2]uint64
	s.call("read a limit of the parent", prlimit64, parent, 7, 0, uintptr(unsafe.Pointer(&limit)))
	s.try("raise a limit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1 << 10, Max: 1 << 10}))
}

func (s *search) system() {
	for _, domain := range []int{syscall.AF_INET, syscall.AF_INET6, syscall.AF_UNIX, syscall.AF_NETLINK, syscall.AF_PACKET} {
		_, err := syscall.Socket(domain, syscall.SOCK_STREAM, 0)
		s.try(fmt.Sprint("socket of domain ", domain), err)
		_, err = syscall.Socketpair(domain, syscall.SOCK_STREAM, 0)
		s.try(fmt.Sprint("pair of sockets of domain ", domain), err)
	}
	s.call("outlive the parent", syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, 0)
	s.call("become readable", syscall.SYS_PRCTL, 4, 1)                        // PR_SET_DUMPABLE
	s.call("read the environment's place", syscall.SYS_PRCTL, 35, 9, 0, 0, 0) // PR_SET_MM
	s.try("new namespaces", syscall.Unshare(syscall.CLONE_NEWUSER|syscall.CLONE_NEWNS))
	s.try("mount", syscall.Mount("none", "/mnt", "tmpfs", 0, ""))
	s.try("another root", syscall.Chroot("/tmp"))
	s.try("another folder", syscall.Chdir("/tmp"))
	s.try("another user", syscall.Setuid(12345))
	s.call("memory without a name", memfdCreate, uintptr(unsafe.Pointer(&[]byte("x\x00")[0])), 0)
	for what, number := range map[string]uintptr{
		"io_uring": 425, "bpf": bpf, "perf": perfEventOpen, "userfaultfd": userfaultfd, "keys": keyctl, "open_by_handle_at": openByHandleAt,
		"openat2": 437, "fsopen": 430, "clone3": 435, "execveat": execveat, "landlock": 444,
	} {
		s.call(what, number, 0, 0, 0, 0, 0, 0)
	}
	var header struct {
		version uint32
		pid     int32
	}
	header.version = 0x20080522
	var capabilities [6]uint32
	s.attempts++
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&capabilities)), 0); errno == 0 && (capabilities[0] != 0 || capabilities[1] != 0) {
		s.leak("capabilities", fmt.Sprint(capabilities))
	}
}

// sharedMemory searches the shared memory for anything but the worker's events.
func (s *search) sharedMemory() {
	const memoryFile, size = 4, 64 << 20
	shared, err := syscall.Mmap(memoryFile, 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		s.leaks = append(s.leaks, "the shared memory cannot be mapped: "+err.Error())
		return
	}
	defer func() { _ = syscall.Munmap(shared) }()
	s.attempts++
	if at := bytes.Index(shared, []byte("perigee-test-"+"secret")); at >= 0 {
		s.leak("shared memory", fmt.Sprint("the secret is at ", at))
	}
}
