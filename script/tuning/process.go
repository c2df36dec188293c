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

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// peakMemory returns the peak memory of this process in bytes. Getrusage may include the
// parent's, so /proc takes precedence.
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
