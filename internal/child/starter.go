//go:build linux

package child

import (
	"os"
	"runtime"
	"sync"
	"syscall"
)

// A Starter starts child processes. Its zero value is ready for use.
type Starter struct {
	mu       sync.Mutex
	children int // that were started and have not ended
	requests chan startRequest
}

// A Command describes a child process.
type Command struct {
	Name  string     // its first argument, for people who list processes
	Env   []string   // all of its environment
	Files []*os.File // its descriptors, from 0
}

// A startRequest asks the starting thread for a process.
type startRequest struct {
	command Command
	started chan<- startResult
}

type startResult struct {
	process *os.Process
	err     error
}

// Start starts a process. The caller calls Ended once it has ended.
//
// A process gets its parent-death signal when the thread that started it ends, so all
// are started by one thread, which lives as long as they do.
func (s *Starter) Start(c Command) (*os.Process, error) {
	s.mu.Lock()
	if s.children++; s.children == 1 {
		s.requests = make(chan startRequest)
		go startProcesses(s.requests)
	}
	requests := s.requests
	s.mu.Unlock()
	started := make(chan startResult)
	requests <- startRequest{c, started}
	result := <-started
	if result.err != nil {
		s.Ended()
	}
	return result.process, result.err
}

// Ended counts the end of a process.
func (s *Starter) Ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.children--; s.children == 0 {
		close(s.requests)
	}
}

// startProcesses starts processes from one thread, which ends with it.
func startProcesses(requests <-chan startRequest) {
	runtime.LockOSThread() // and never unlock it: the thread must serve nobody else
	for q := range requests {
		process, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], q.command.Name}, &os.ProcAttr{
			Dir: "/", Env: q.command.Env, Files: q.command.Files,
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
		q.started <- startResult{process, err}
	}
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
