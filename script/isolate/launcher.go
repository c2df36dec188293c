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

// workerVariable marks a process as a script worker, and contains the layout of its shared memory.
// A worker has two more variables: the time zone, and GOMAXPROCS, since it cannot read the CPU
// limit of its control group. It removes all of them before it loads any code.
const workerVariable = "PERIGEE_SCRIPT_WORKER"

// zoneFiles are the files from which Go and the C library read time zones.
var zoneFiles = []string{"/etc/localtime", "/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"}

// Descriptors of a worker's files.
const (
	socketFile = 3
	memoryFile = 4
)

// A Launcher starts script workers. A nil Launcher starts none.
type Launcher struct{ languages []script.Language }

// start starts a process that can read codeFile, unless that is empty.
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

// openFiles creates the files of a worker. The caller closes the worker's side after the start.
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
