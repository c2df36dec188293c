package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Memory breaks the memory of a process down, in bytes.
type Memory struct {
	Resident  int64 // Anonymous, FileBacked and shared memory
	Anonymous int64 // heaps and stacks
	// FileBacked are pages of the binary, of libraries and of mapped databases. The
	// kernel can drop them at any time.
	FileBacked int64
	GoHeap     int64 // Go heap in use, garbage included
	GoLive     int64 // Go heap that the last collection left: half of the next one's goal
	GoStacks   int64
	CInUse     int64 // allocated with malloc by C code
	CFree      int64 // freed by C code but kept by malloc
	VMs        int64 // accounted for by scripts' VMs; part of CInUse with LuaJIT
}

// ReadMemory reads the figures of the kernel, and the engine's metrics over the socket in
// its data folder.
func (e *Process) ReadMemory(ctx context.Context, socket string) (m Memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.command.Process.Pid))
	if err != nil {
		return m, err
	}
	text := string(status)
	m.Resident, m.Anonymous, m.FileBacked = parseKiB(text, "VmRSS:"), parseKiB(text, "RssAnon:"), parseKiB(text, "RssFile:")
	metrics, err := readMetrics(ctx, socket)
	if err != nil {
		return m, err
	}
	m.GoHeap, m.GoStacks = metrics["go_memstats_heap_inuse_bytes"], metrics["go_memstats_stack_inuse_bytes"]
	m.GoLive = metrics["go_memstats_next_gc_bytes"] / 2
	m.CInUse, m.CFree = metrics[`perigee_c_allocator_bytes{state="in_use"}`], metrics[`perigee_c_allocator_bytes{state="free"}`]
	m.VMs = metrics["perigee_vms_memory_bytes"]
	return m, nil
}

// readMetrics returns the engine's metrics by name and labels.
func readMetrics(ctx context.Context, socket string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://perigee/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the engine's metrics: %w", err)
	}
	defer response.Body.Close()
	return parseMetrics(response.Body)
}

// parseMetrics parses Prometheus' text format without timestamps.
func parseMetrics(r io.Reader) (map[string]int64, error) {
	metrics := make(map[string]int64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read the engine's metrics: %w", err)
		}
		metrics[line[:i]] = int64(value)
	}
	return metrics, lines.Err()
}
