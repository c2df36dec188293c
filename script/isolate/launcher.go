//go:build linux

package isolate

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
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
	starter   child.Starter
}

// start starts a process. The caller calls starter.Ended once it has ended.
func (l *Launcher) start(files []*os.File, memory layout) (*os.Process, error) {
	env := append(child.Environment(kept...), workerVariable+"="+memory.String())
	process, err := l.starter.Start(child.Command{Name: "script-worker", Env: env, Files: files})
	if err != nil {
		return nil, fmt.Errorf("start script worker: %w", err)
	}
	return process, nil
}

// openFiles makes the files of a worker. Those for the worker are closed after the start.
func openFiles(l layout) (_, _ *workerFiles, err error) {
	ours, theirs := &workerFiles{}, &workerFiles{}
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
