//go:build linux

package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

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
	socketFile = child.SocketFile
	memoryFile = child.SocketFile + 1
)

// A Launcher starts script workers. A nil Launcher starts none.
type Launcher struct{ languages []script.Language }

// start starts a process with a file of shared memory. It can read codeFile, unless that is empty.
func start(file *os.File, memory layout, codeFile string) (*child.Process, error) {
	env := append(child.Environment("TZ"), workerVariable+"="+memory.String(), fmt.Sprintf("GOMAXPROCS=%d", runtime.GOMAXPROCS(0)))
	readable := zoneFiles
	if zone := strings.TrimPrefix(os.Getenv("TZ"), ":"); filepath.IsAbs(zone) {
		readable = append(slices.Clone(readable), zone)
	}
	if codeFile != "" {
		readable = append(slices.Clone(readable), codeFile)
	}
	process, err := child.Start(child.Command{Name: "script-worker", Env: env, Files: []*os.File{file}, Readable: readable})
	if err != nil {
		return nil, fmt.Errorf("start script worker: %w", err)
	}
	return process, nil
}
