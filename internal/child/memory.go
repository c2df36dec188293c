//go:build linux

package child

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns the private memory of the process in bytes: its resident part, and all that is
// mapped. Both are 0 after the process has ended.
func (p *Process) Memory() (resident, mapped int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid))
	if err != nil {
		return 0, 0
	}
	return bytesOf(string(status), "RssAnon"), bytesOf(string(status), "VmData")
}

// bytesOf returns the value of a field of /proc/PID/status, which is in KiB, or 0.
func bytesOf(status, field string) int64 {
	_, rest, _ := strings.Cut(status, "\n"+field+":")
	text, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.ParseInt(text, 10, 64)
	return kib << 10
}
