//go:build linux

package isolate

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/script"
)

// workerVariable tells a process that it is a script worker, and how its shared memory
// is divided.
const workerVariable = "PERIGEE_SCRIPT_WORKER"

// kept are the only variables of the environment that workers get: the time zone, and
// where a Go plugin is unpacked.
var kept = []string{"TZ", "TMPDIR"}

// Files of a worker, by descriptor.
const (
	socketFile = 3
	memoryFile = 4
)

// A Launcher starts script workers. A nil Launcher starts none.
type Launcher struct {
	languages []script.Language

	mu       sync.Mutex
	workers  int // that were started and have not ended
	requests chan startRequest
}

// A startRequest asks the starting thread for a process.
type startRequest struct {
	files   []*os.File
	layout  layout
	started chan<- startResult
}

type startResult struct {
	process *os.Process
	err     error
}

// start starts a process. The caller calls ended once it has ended.
//
// A process gets its parent-death signal when the thread that started it ends, so all
// are started by one thread, which lives as long as they do.
func (l *Launcher) start(files []*os.File, memory layout) (*os.Process, error) {
	l.mu.Lock()
	if l.workers++; l.workers == 1 {
		l.requests = make(chan startRequest)
		go startProcesses(l.requests)
	}
	requests := l.requests
	l.mu.Unlock()
	started := make(chan startResult)
	requests <- startRequest{files, memory, started}
	result := <-started
	if result.err != nil {
		l.ended()
		return nil, fmt.Errorf("start script worker: %w", result.err)
	}
	return result.process, nil
}

// ended counts the end of a process.
func (l *Launcher) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers--; l.workers == 0 {
		close(l.requests)
	}
}

// startProcesses starts processes from one thread, which ends with it.
func startProcesses(requests <-chan startRequest) {
	runtime.LockOSThread() // and never unlock it: the thread must serve nobody else
	for q := range requests {
		process, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], "script-worker"}, &os.ProcAttr{
			Dir: "/", Env: workerEnvironment(q.layout), Files: q.files,
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
		q.started <- startResult{process, err}
	}
}

func workerEnvironment(memory layout) []string {
	env := []string{workerVariable + "=" + memory.String()}
	for _, name := range kept {
		if value, found := os.LookupEnv(name); found {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// openFiles makes the files of a worker. Those for the worker are closed after the start.
func openFiles(l layout) (ours, theirs *workerFiles, err error) {
	ours, theirs = &workerFiles{}, &workerFiles{}
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
	ours.socket, theirs.socket = os.NewFile(uintptr(pair[0]), "script worker"), os.NewFile(uintptr(pair[1]), "script worker")
	if ours.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	theirs.null, ours.null = ours.null, nil
	if ours.stderr, theirs.stderr, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if ours.memory, err = createMemory(l); err != nil {
		return nil, nil, err
	}
	theirs.memory, ours.memory = ours.memory, nil
	return ours, theirs, nil
}

// workerFiles are the files of one side.
type workerFiles struct {
	socket, memory, null, stderr *os.File
}

func (f *workerFiles) close() {
	for _, file := range []*os.File{f.socket, f.memory, f.null, f.stderr} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// A tail keeps the last bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
	from io.Closer
	done chan struct{} // closed at the end of the stream
}

// finish waits for the end of the stream, but not for a process that outlives its parent.
func (t *tail) finish() {
	select {
	case <-t.done:
	case <-time.After(time.Second):
		_ = t.from.Close()
		<-t.done
	}
}

const tailBytes = 8 << 10

// readTail reads a stream to its end.
func readTail(from io.ReadCloser) *tail {
	t := &tail{from: from, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer func() { _ = from.Close() }()
		buf := make([]byte, 4<<10)
		for {
			n, err := from.Read(buf)
			t.add(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return t
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The beginning of a crash report says most: keep the first half once it is full.
	if len(t.last)+len(b) > tailBytes {
		keep := tailBytes / 2
		if len(t.last) > keep {
			t.last = t.last[:keep]
		}
		b = b[:min(len(b), tailBytes-len(t.last))]
	}
	t.last = append(t.last, b...)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.last)), "\uFFFD")
}
