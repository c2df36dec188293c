//go:build cgo

// Command run holds the VM against the hostile scripts, each in a process of its
// own, and prints how soon each was stopped. It fails when one was not, when it
// was late, or when a process died.
//
//	run            all scripts, compiled and interpreted
//	run -oom       the sweep of memory limits over scripts that allocate
//	run -only text scripts whose name has the text
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

// How late after its deadline a script may be stopped.
const (
	medianBound = 150 * time.Millisecond
	worstBound  = 500 * time.Millisecond
)

func main() {
	oom := flag.Bool("oom", false, "sweep memory limits instead")
	only := flag.String("only", "", "only scripts whose name has this text")
	child := flag.String("child", "", "run one script in this process")
	mode := flag.String("mode", "compiled", "compiled or interpreted")
	memory := flag.Int("memory", 64<<20, "memory limit in bytes")
	flag.Parse()
	switch {
	case *child != "":
		attack(*child, *mode == "compiled", *memory)
	case *oom:
		os.Exit(sweep())
	default:
		os.Exit(run(*only))
	}
}

// spawn runs one script in a child and returns the last line that it printed.
func spawn(name, mode string, memory int) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self, "-child", name, "-mode", mode, "-memory", fmt.Sprint(memory))
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
