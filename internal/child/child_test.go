//go:build linux

package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// task names the task of the test's process as a child, which prints lines.
const task = "CHILD_TASK"

var tasks = map[string]func() error{
	"allocate":    allocateMemory,
	"echo":        echoMessage,
	"environment": printEnvironment,
	"descriptors": printDescriptors,
	"filter":      tryCalls,
	"memory":      tryMemory,
	"files":       tryFiles,
	"hidden":      printHidden,
	"inherited":   printInherited,
	"keep":        keepDescriptors,
	"parent":      startAnother,
	"sleep":       func() error { fmt.Println("asleep"); time.Sleep(time.Hour); return nil },
}

func TestMain(m *testing.M) {
	if run := tasks[os.Getenv(task)]; run != nil {
		if err := run(); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A started child, and its output.
type started struct {
	process *Process
	out     *os.File
	ended   sync.Once
	end     func()
}

func start(t *testing.T, name string, more ...*os.File) *started {
	t.Helper()
	return startReading(t, nil, name, more)
}

func startReading(t *testing.T, readable []string, name string, more []*os.File, env ...string) *started {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	process, err := startProcess(Command{Name: "child", Env: append(env, task+"="+name), Files: append([]*os.File{null, theirs, theirs}, more...), Readable: readable})
	if err != nil {
		t.Fatal(err)
	}
	c := &started{process: process, out: out}
	c.end = func() {
		_ = process.Kill()
		<-process.Exited()
		_ = out.Close()
	}
	t.Cleanup(func() { c.ended.Do(c.end) })
	return c
}

// lines returns the output of the child until it ends.
func (c *started) lines(t *testing.T) []string {
	t.Helper()
	_ = c.out.SetReadDeadline(time.Now().Add(20 * time.Second))
	text, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	c.ended.Do(c.end)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func printEnvironment() error {
	fmt.Println(len(os.Environ()), os.Args[1:])
	group, err := unix.Getpgid(0)
	working, _ := os.Getwd()
	fmt.Println(group == os.Getpid(), working)
	return err
}

// TestStart starts children, also after a pause: each has the environment that it is given, and its
// own process group.
func TestStart(t *testing.T) {
	for range 3 {
		var all []*started
		for range 4 {
			all = append(all, start(t, "environment"))
		}
		for _, c := range all {
			if got := c.lines(t); !slices.Equal(got, []string{"1 [child]", "true /"}) {
				t.Errorf("a child says %q", got)
			}
		}
	}
	t.Setenv("CHILD_A", "a b")
	if got := Environment("CHILD_NONE", "CHILD_A"); !slices.Equal(got, []string{"CHILD_A=a b"}) {
		t.Errorf("environment %q", got)
	}
	if _, err := Start(Command{Name: "child", Env: []string{"A=\x00"}}); err == nil {
		t.Error("a child starts with an invalid environment")
	}
}

// echoMessage answers the first message of the parent, and prints to stderr.
func echoMessage() error {
	var b [16]byte
	n, err := unix.Read(SocketFile, b[:])
	if err == nil {
		_, err = unix.Write(SocketFile, append([]byte("got "), b[:n]...))
	}
	file := os.NewFile(SocketFile+1, "given")
	text, _ := io.ReadAll(file)
	fmt.Println("stdout is the null device")
	fmt.Fprintf(os.Stderr, "panic: file %s\n", text)
	return err
}

// TestStartConnects checks the descriptors of a process that Start starts.
func TestStartConnects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "given")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	given, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	p, err := Start(Command{Name: "child", Env: []string{task + "=echo"}, Files: []*os.File{given}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Socket.Close()
	defer p.Kill()
	if _, err := p.Socket.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	var b [16]byte
	if n, err := p.Socket.Read(b[:]); err != nil || string(b[:n]) != "got hello" {
		t.Errorf("answer %q, error %v", b[:n], err)
	}
	<-p.Exited()
	p.Stderr.Finish()
	if got := p.Stderr.String(); got != "panic: file text" || p.Stderr.CrashLine() != got {
		t.Errorf("stderr %q, crash line %q, want both %q", got, p.Stderr.CrashLine(), "panic: file text")
	}
}

// TestStartClosesFiles starts processes that cannot be started, for lack of descriptors or because
// of their environment: no file stays open.
func TestStartClosesFiles(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	lowestFree := func() uint64 {
		t.Helper()
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		return uint64(file.Fd())
	}
	first := lowestFree()
	for files := range uint64(6) { // at 5, starting fails because of the environment
		few := limit
		few.Cur = first + files
		if files == 5 {
			few = limit
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		_, err := Start(Command{Name: "child", Env: []string{"A=\x00"}})
		if err == nil || errors.Is(err, unix.EMFILE) != (files < 5) {
			t.Errorf("%d files: error %v", files, err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if now := lowestFree(); now != first {
			t.Fatalf("%d files: descriptor %d is free, was %d", files, now, first)
		}
	}
}

// allocateMemory maps 128 MiB, uses half of it, and waits.
func allocateMemory() error {
	memory, err := unix.Mmap(-1, 0, 128<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < 64<<20; i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println("allocated")
	time.Sleep(time.Hour)
	return nil
}

func TestMemory(t *testing.T) {
	c := start(t, "allocate")
	_ = c.out.SetReadDeadline(time.Now().Add(20 * time.Second))
	if in := bufio.NewScanner(c.out); !in.Scan() || in.Text() != "allocated" {
		t.Fatalf("the child printed %q", in.Text())
	}
	resident, mapped := c.process.Memory()
	if resident < 64<<20 || resident >= mapped || mapped < 128<<20 {
		t.Errorf("got %d resident and %d mapped bytes, want at least %d and %d", resident, mapped, 64<<20, 128<<20)
	}
	c.ended.Do(c.end)
	if resident, mapped := c.process.Memory(); resident != 0 || mapped != 0 {
		t.Errorf("after the end: got %d resident and %d mapped bytes, want 0", resident, mapped)
	}
}

func printDescriptors() error {
	event, err := unix.Eventfd(0, 0) // like that of Go's runtime
	if err != nil {
		return err
	}
	if err := CloseInherited(3); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(event), unix.F_GETFD, 0); err != nil {
		return fmt.Errorf("an eventfd was closed: %w", err)
	}
	for fd := range 10 {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); err == nil && !strings.HasPrefix(name, "anon_inode:[event") && !strings.HasPrefix(name, "/sys/fs/cgroup/") {
			fmt.Println(fd)
		}
	}
	return nil
}

func TestCloseInherited(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if got := start(t, "descriptors", null, null, null).lines(t); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("descriptors %q are open", got)
	}
}

// tryCalls prints the results of calls under a filter.
func tryCalls() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	parent := os.Getppid()
	if missing, err := FilterCalls(append(RunningCalls(), AllowArgument(unix.SYS_DUP3, 1, 9))); err != nil || len(missing) > 0 {
		return fmt.Errorf("%v, %w", missing, err)
	}
	say := func(what string, err error) { fmt.Println(what, err) }
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	say("socket", err)
	_, err = unix.Open("/dev/null", unix.O_RDONLY, 0)
	say("open", err)
	say("kill", unix.Kill(parent, 0))
	say("signal to itself", unix.Tgkill(os.Getpid(), unix.Gettid(), 0))
	say("signal to another", unix.Tgkill(parent, parent, 0))
	say("read limit", unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit))
	say("set limit", unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil))
	_, err = unix.FcntlInt(null.Fd(), unix.F_GETFL, 0)
	say("read flags", err)
	_, err = unix.FcntlInt(null.Fd(), unix.F_SETOWN, os.Getpid())
	say("set owner", err)
	say("argument that is allowed", unix.Dup3(int(null.Fd()), 9, 0))
	say("another argument", unix.Dup3(int(null.Fd()), 10, 0))
	id, _, clone := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if clone == 0 && id == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	say("process", clone)
	_, _, clone3 := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	say("clone3", clone3)
	var threads sync.WaitGroup
	for range 8 { // each needs its own thread
		threads.Go(func() {
			runtime.LockOSThread()
			time.Sleep(10 * time.Millisecond)
		})
	}
	threads.Wait()
	fmt.Println("threads run")
	return nil
}

func TestFilterCalls(t *testing.T) {
	if auditArch == 0 {
		t.Skip("calls are not filtered on " + runtime.GOARCH)
	}
	denied, allowed := unix.EPERM.Error(), "<nil>"
	want := []string{
		"socket " + denied, "open " + denied, "kill " + denied, "signal to itself " + allowed, "signal to another " + denied,
		"read limit " + allowed, "set limit " + denied, "read flags " + allowed, "set owner " + denied,
		"argument that is allowed " + allowed, "another argument " + denied, "process " + denied, "clone3 " + unix.ENOSYS.Error(), "threads run",
	}
	if got := start(t, "filter").lines(t); !slices.Equal(got, want) {
		t.Errorf("behind the filter:\n%q\nwant\n%q", got, want)
	}
}

// tryFiles prints which files the process can open, and its privileges.
func tryFiles() error {
	parent := os.Getppid()
	say := func(what string, err error) { fmt.Println(what, err == nil) }
	for _, path := range []string{os.Getenv("CHILD_READABLE"), os.Getenv("CHILD_OTHER"), "/etc/passwd", "/proc/self/status", fmt.Sprintf("/proc/%d/mem", parent), fmt.Sprintf("/proc/%d/environ", parent)} {
		file, err := os.Open(path)
		say("read "+strings.ReplaceAll(path, strconv.Itoa(parent), "PARENT"), err)
		_ = file.Close()
	}
	for _, path := range []string{os.Getenv("CHILD_READABLE"), filepath.Join(filepath.Dir(os.Getenv("CHILD_READABLE")), "new")} {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		say("write "+path, err)
		_ = file.Close()
	}
	say("trace", unix.PtraceAttach(parent))
	_, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	say("null", err)
	for capability := range unix.CAP_LAST_CAP + 1 {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(capability), 0, 0, 0)
		if err == nil && held == 1 && os.Getuid() == 0 {
			fmt.Println("capability", capability)
		}
	}
	gained, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	fmt.Println("no new privileges", gained, err)
	return nil
}

// TestReadable starts a child that can read one file, and one that can read its parent's files:
// neither can read or write other files, or read the memory of its parent.
func TestReadable(t *testing.T) {
	version, _, fault := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if fault != 0 || version < 4 {
		t.Skip("this kernel has no Landlock of version 4")
	}
	folder := t.TempDir()
	readable, other := filepath.Join(folder, "readable"), filepath.Join(folder, "other")
	for _, path := range []string{readable, other} {
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	memory := []string{"read /proc/PARENT/mem false", "read /proc/PARENT/environ false"}
	for _, test := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"one file", []string{readable, filepath.Join(folder, "missing")}, slices.Concat([]string{
			"read " + readable + " true", "read " + other + " false", "read /etc/passwd false", "read /proc/self/status false",
		}, memory, []string{"write " + readable + " false", "write " + filepath.Join(folder, "new") + " false", "trace false", "null false"})},
		{"all files", nil, slices.Concat([]string{
			"read " + readable + " true", "read " + other + " true", "read /etc/passwd true", "read /proc/self/status true",
		}, memory, []string{"write " + readable + " true", "write " + filepath.Join(folder, "new") + " true", "trace false", "null true"})},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if os.Getuid() == 0 && test.files == nil {
				want = append(want, "capability 0", "capability 1", "capability 2", "capability 3")
			}
			want = append(want, "no new privileges 1 <nil>")
			got := startReading(t, test.files, "files", nil, "CHILD_READABLE="+readable, "CHILD_OTHER="+other).lines(t)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the child can (-want +got):\n%s", diff)
			}
		})
	}
}

func printHidden() error {
	before, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	err := HideMemory()
	after, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	fmt.Println("readable", before, after)
	return err
}

// TestHideMemory checks that a process can hide its memory, and that starting children hides it.
func TestHideMemory(t *testing.T) {
	if got := start(t, "hidden").lines(t); !slices.Equal(got, []string{"readable 1 0"}) {
		t.Errorf("a child says %q, want that it is readable until it hides", got)
	}
	if mine, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); mine != 0 || err != nil {
		t.Errorf("the parent is readable: %d, %v", mine, err)
	}
}

// TestInheritedDescriptors opens a file as C libraries do, so that children could inherit it: none
// may.
func TestInheritedDescriptors(t *testing.T) {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if got := start(t, "inherited").lines(t); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("descriptors %q are open, want those that the child was given", got)
	}
}

// printInherited prints the descriptors that are not event queues.
func printInherited() error {
	own, err := anonymousFile()
	if err != nil {
		return err
	}
	for fd := range 100 {
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) == nil && stat.Ino != own.Ino {
			if name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); !strings.HasPrefix(name, "/sys/fs/cgroup/") {
				fmt.Println(fd)
			}
		}
	}
	return nil
}

// TestKeepDescriptors closes all descriptors of a child except the first ones and the queues of
// Go's runtime. One queue has a high number.
func TestKeepDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if got := start(t, "keep", null, null, null).lines(t); !slices.Equal(got, []string{"queue <nil>", "0", "1", "2", "3"}) {
		t.Errorf("the child says %q", got)
	}
}

func keepDescriptors() error {
	queue, err := unix.Eventfd(0, 0) // like that of Go's runtime
	if err != nil {
		return err
	}
	if err := unix.Dup3(0, 90, 0); err != nil {
		return err
	}
	if err := unix.Dup3(0, 300, 0); err != nil {
		return err
	}
	highest, err := KeepDescriptors(3)
	if err != nil || highest < queue {
		return fmt.Errorf("highest descriptor %d, want at least %d: %w", highest, queue, err)
	}
	_, err = unix.FcntlInt(uintptr(queue), unix.F_GETFD, 0)
	fmt.Println("queue", err)
	if _, err = unix.FcntlInt(300, unix.F_GETFD, 0); err == nil {
		fmt.Println(300)
	}
	return printInherited()
}

func tryMemory() error {
	if err := LimitMemory(64<<20, 0); err != nil {
		return err
	}
	for _, size := range []int{32 << 20, 128 << 20} {
		_, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		fmt.Println(size>>20, err)
	}
	if err := LimitResource("memory", unix.RLIMIT_DATA, 1<<40, 1<<40); err != nil {
		return err
	}
	_, err := unix.Mmap(-1, 0, 128<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	fmt.Println("raised", err)
	return LimitResource("nothing", 1<<20, 0, 0)
}

func TestLimitMemory(t *testing.T) {
	full := unix.ENOMEM.Error()
	want := []string{"32 <nil>", "128 " + full, "raised " + full, "error limit nothing: " + unix.EINVAL.Error()}
	if got := start(t, "memory").lines(t); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func startAnother() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	process, err := startProcess(Command{Name: "child", Env: []string{task + "=sleep"}, Files: []*os.File{null, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	fmt.Println(process.Pid)
	time.Sleep(time.Hour)
	return nil
}

// TestChildrenEndWithTheirParent kills a process that has a child.
func TestChildrenEndWithTheirParent(t *testing.T) {
	c := start(t, "parent")
	_ = c.out.SetReadDeadline(time.Now().Add(20 * time.Second))
	pid := 0
	in := bufio.NewScanner(c.out)
	for said := 0; said < 2 && in.Scan(); said++ { // a line of the parent and one of the child
		if n, err := strconv.Atoi(in.Text()); err == nil {
			pid = n
		}
	}
	if pid == 0 || !isRunning(pid) {
		t.Fatalf("child %d does not run", pid)
	}
	if err := c.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); isRunning(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlives its parent")
		}
	}
}

// isRunning reports whether a process exists and has not ended; a zombie has ended.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
