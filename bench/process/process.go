// Package process reads the kernel's figures of processes and their descendants.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Process holds the kernel's figures of a process.
type Process struct {
	Parent int
	Time   time.Duration // CPU time, including that of children it has waited for
	Ended  bool
}

// tick is the kernel's unit of CPU time.
const tick = 10 * time.Millisecond

// Read returns an ended process if pid does not exist.
func Read(pid int) Process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')') // end of the name, which may contain anything
	if err != nil || end < 0 {
		return Process{Ended: true}
	}
	fields := strings.Fields(string(text[end+1:]))
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return Process{Parent: number(1), Time: time.Duration(number(11)+number(12)+number(13)+number(14)) * tick, Ended: fields[0] == "Z"}
}

// Tree returns pid and all its descendants.
func Tree(pid int) []int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	for _, entry := range entries {
		if n, err := strconv.Atoi(filepath.Base(entry)); err == nil {
			parents[n] = Read(n).Parent
		}
	}
	members := []int{pid}
	for i := 0; i < len(members); i++ {
		for child, parent := range parents {
			if parent == members[i] {
				members = append(members, child)
			}
		}
	}
	return members
}

// TreeTime returns the CPU time of pid and its running descendants.
func TreeTime(pid int) (total time.Duration) {
	for _, member := range Tree(pid) {
		total += Read(member).Time
	}
	return total
}

// Figures of memory in the kernel's status of a process.
const (
	PeakResident      = "VmHWM"
	Resident          = "VmRSS"
	ResidentAnonymous = "RssAnon" // without mapped files
)

// Memory returns a figure of the memory of pid and its running descendants together, in bytes.
func Memory(pid int, figure string) (total int64) {
	for _, member := range Tree(pid) {
		total += MemoryOf(member, figure)
	}
	return total
}

// MemoryOf returns a figure of the memory of pid alone, in bytes; 0 if it does not exist.
func MemoryOf(pid int, figure string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, found := strings.Cut(string(text), figure+":")
	if err != nil || !found {
		return 0
	}
	kib, _ := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	return kib << 10
}

// Written returns how many bytes pid has passed to system calls that write, also to sockets. It can be
// read until the process has been waited for. The kernel's count of bytes for the disk is of no use: it
// counts whole folios, and the process may have changed only one page of each.
func Written(pid int) (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, after, _ := strings.Cut(string(text), "\nwchar: ")
	line, _, _ := strings.Cut(after, "\n")
	bytes, _ = strconv.ParseInt(line, 10, 64)
	return bytes
}

// WatchMemory samples a figure of the memory of pid and its descendants. The function that it
// returns stops that and returns the peak.
func WatchMemory(pid int, figure string) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		peak := int64(0)
		for {
			peak = max(peak, Memory(pid, figure))
			select {
			case <-stop:
				result <- peak
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}
