//go:build cgo && luajit

// Command run runs the hostile scripts, each in its own process, and prints how soon each was
// stopped. It fails if a script ends in a way that is not allowed, is stopped too late, or crashes
// its process.
//
//	run            all scripts, compiled and interpreted
//	run -oom       the sweep of memory limits over scripts that allocate
//	run -only text only scripts whose name contains the text
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Limits for the time between a script's deadline and its stop.
const (
	maxMedian = 150 * time.Millisecond
	maxWorst  = 500 * time.Millisecond
)

func main() {
	oom := flag.Bool("oom", false, "sweep memory limits instead")
	only := flag.String("only", "", "run only scripts whose name contains this text")
	child := flag.String("child", "", "run one script in this process")
	mode := flag.String("mode", "compiled", "compiled or interpreted")
	memory := flag.Int("memory", 64<<20, "memory limit in bytes")
	folder := flag.String("nodes", "", "the store of one script")
	flag.Parse()
	switch {
	case *child != "":
		runScript(*child, *mode == "compiled", *memory, *folder)
	case *oom:
		os.Exit(sweepMemoryLimits())
	default:
		os.Exit(runAll(*only))
	}
}

// runChild runs one script in a child process, with the store in folder if it needs one, and
// returns the last line of its output.
func runChild(name, mode string, memory int, folder string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self, "-child", name, "-mode", mode, "-memory", fmt.Sprint(memory), "-nodes", folder)
	kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer kill.Stop()
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return lines[0], err
	}
	return lines[len(lines)-1], nil
}

func median(late []time.Duration) time.Duration {
	if len(late) == 0 {
		return 0
	}
	slices.Sort(late)
	return late[len(late)/2]
}
