package tuning

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// processorTime is what this process has used of all cores.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// peakMemory is the most memory that this process ever had, in bytes. What the operating
// system counts for a process can include that of its parent, so /proc comes first.
func peakMemory() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
			var kilobytes uint64
			if n, _ := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kilobytes); n == 1 {
				return kilobytes << 10
			}
		}
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return uint64(used.Maxrss)
	}
	return uint64(used.Maxrss) << 10
}
