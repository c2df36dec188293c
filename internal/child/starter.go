//go:build linux

package child

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Command describes a child process.
type Command struct {
	Name  string     // its first argument, for process listings
	Env   []string   // its complete environment
	Files []*os.File // its descriptors, from SocketFile + 1
	// Readable lists the files and folders that the process can open for reading, in addition to
	// the program and its libraries. The process cannot write files, and has no privileges. If
	// Readable is nil, it can open the same files as this process.
	Readable []string
}

// SocketFile is a child's descriptor of the socket to its parent. Descriptors 0 and 1 are the null
// device, and 2 is read by Process.Stderr.
const SocketFile = 3

// A Process is a child process.
type Process struct {
	*os.Process
	Socket *os.File // preserves messages (SOCK_SEQPACKET); closed by the owner of the Process
	Stderr *Tail
	// Missing lists the restrictions that the kernel does not support.
	Missing []string

	exited chan struct{}
	state  *os.ProcessState
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State returns the status of the process. Call it after the process has ended.
func (p *Process) State() *os.ProcessState { return p.state }

type startResult struct {
	process *Process
	err     error
}

// hideOnce hides this program's memory before it starts its first child.
var hideOnce sync.Once

// Start starts a process, and waits for its end in the background; see Exited. From then on this
// program writes no core dumps, and other processes of the same user cannot read its memory.
func Start(c Command) (*Process, error) {
	ours, theirs, err := openFiles(c.Name)
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	c.Files = append([]*os.File{theirs.null, theirs.null, theirs.stderr, theirs.socket}, c.Files...)
	p, err := startProcess(c)
	if err != nil {
		ours.close()
		return nil, err
	}
	p.Socket, p.Stderr = ours.socket, readTail(ours.stderr)
	return p, nil
}

// standardFiles are one side's ends of the files that each child has.
type standardFiles struct{ null, socket, stderr *os.File }

// openFiles creates the files of a child, which has theirs.
func openFiles(name string) (_, _ *standardFiles, err error) {
	ours, theirs := &standardFiles{}, &standardFiles{}
	defer func() {
		if err != nil {
			ours.close()
			theirs.close()
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours.socket, theirs.socket = os.NewFile(uintptr(pair[0]), name), os.NewFile(uintptr(pair[1]), name)
	if theirs.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if ours.stderr, theirs.stderr, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	return ours, theirs, nil
}

func (f *standardFiles) close() {
	for _, file := range []*os.File{f.null, f.socket, f.stderr} {
		_ = file.Close() // on nil it only returns an error
	}
}

// startProcess is Start with all descriptors in c.Files, from 0.
func startProcess(c Command) (*Process, error) {
	hideOnce.Do(func() { _ = HideMemory() }) // cannot fail with these arguments
	started := make(chan startResult)
	go runChild(&c, started)
	result := <-started
	return result.process, result.err
}

// runChild starts a process from a dedicated thread, and waits for its end. The process inherits
// the restrictions of the thread. It gets its parent-death signal when the thread ends.
func runChild(c *Command, started chan<- startResult) {
	runtime.LockOSThread() // never unlocked: the restricted thread ends with the goroutine
	process, err := launch(c)
	started <- startResult{process, err}
	if err != nil {
		return
	}
	process.state, _ = process.Wait()
	close(process.exited)
}

func launch(c *Command) (*Process, error) {
	missing, err := restrictThread(c.Readable)
	if err != nil {
		return nil, err
	}
	// Also close descriptors opened by C libraries. If the kernel cannot, the child does it.
	_ = unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
	process, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], c.Name}, &os.ProcAttr{
		Dir: "/", Env: c.Env, Files: c.Files,
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, err
	}
	return &Process{Process: process, Missing: missing, exited: make(chan struct{})}, nil
}

// Environment returns those of the named environment variables of this process that are set, as
// name=value.
func Environment(names ...string) (env []string) {
	for _, name := range names {
		if value, found := os.LookupEnv(name); found {
			env = append(env, name+"="+value)
		}
	}
	return env
}
