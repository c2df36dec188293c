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
	Name  string     // its first argument, for people who list processes
	Env   []string   // all of its environment
	Files []*os.File // its descriptors, from 0
	// Readable, if it is not nil, are the files and folders that the process can open, for
	// reading, besides the program and its libraries. It can write to none, and it has no
	// privileges. Nil leaves it the files of this process.
	Readable []string
}

// A Process is a child that was started.
type Process struct {
	*os.Process
	// Missing says what the kernel does not offer to confine it.
	Missing []string

	exited chan struct{}
	state  *os.ProcessState
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State says how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.state }

type startResult struct {
	process *Process
	err     error
}

// hideOnce hides this program before it has a child.
var hideOnce sync.Once

// Start starts a process. Nobody else waits for its end: see Exited. This program has no core dumps
// from now on, and other processes of the same user cannot read it.
func Start(c Command) (*Process, error) {
	hideOnce.Do(func() { _ = HideMemory() }) // it cannot fail with these arguments
	started := make(chan startResult)
	go runChild(&c, started)
	result := <-started
	return result.process, result.err
}

// runChild starts a process from a thread of its own, and waits for its end. The process inherits what
// the thread has given up. It gets its parent-death signal when the thread ends.
func runChild(c *Command, started chan<- startResult) {
	runtime.LockOSThread() // and never unlock it: the thread has lost its rights, and ends with the goroutine
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
	// What C libraries have opened is closed, too. A kernel that cannot do this leaves it to the child.
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

// Environment returns the named variables of this process's environment that are set,
// as name=value.
func Environment(names ...string) (env []string) {
	for _, name := range names {
		if value, found := os.LookupEnv(name); found {
			env = append(env, name+"="+value)
		}
	}
	return env
}
