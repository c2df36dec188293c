//go:build linux

package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/internal/child"
	"github.com/perigeedb/perigee/script"
)

// workerVariable tells a process that it is a script worker, and how its shared memory
// is divided. A worker has two more variables: the time zone, and GOMAXPROCS, because it cannot
// read how many processors its control group has. It removes all of them before it has any code.
const workerVariable = "PERIGEE_SCRIPT_WORKER"

// zoneFiles are where Go and the C library read time zones.
var zoneFiles = []string{"/etc/localtime", "/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"}

// Files of a worker, by descriptor.
const (
	socketFile = 3
	memoryFile = 4
)

// A Launcher starts script workers. A nil Launcher starts none.
type Launcher struct{ languages []script.Language }

// start starts a process that can read codeFile, if there is one.
func start(files []*os.File, memory layout, codeFile string) (*child.Process, error) {
	env := append(child.Environment("TZ"), workerVariable+"="+memory.String(), fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0)))
	readable := zoneFiles
	if zone := strings.TrimPrefix(os.Getenv("TZ"), ":"); filepath.IsAbs(zone) {
		readable = append(slices.Clone(readable), zone)
	}
	if codeFile != "" {
		readable = append(slices.Clone(readable), codeFile)
	}
	process, err := child.Start(child.Command{Name: "script-worker", Env: env, Files: files, Readable: readable})
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
