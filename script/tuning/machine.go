package tuning

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// ThisMachine describes the machine. versions are those of linked libraries.
func ThisMachine(versions []string) Machine {
	m := Machine{
		Processor: value("/proc/cpuinfo", "model name", ":"), Cores: runtime.NumCPU(),
		System:   strings.Trim(value("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Versions: append([]string{runtime.Version()}, versions...),
	}
	if _, err := fmt.Sscanf(value("/proc/meminfo", "MemTotal", ":"), "%d kB", &m.Memory); err == nil {
		m.Memory <<= 10
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.System = strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", m.System, strings.TrimSpace(string(kernel)), runtime.GOOS, runtime.GOARCH))
	if m.Processor == "" {
		m.Processor = runtime.GOARCH
	}
	return m
}

// value returns the value of a key in a file of lines, or "".
func value(file, key, separator string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, v, found := strings.Cut(lines.Text(), separator)
		if found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
