//go:build linux

package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LimitResource sets a resource limit of the process. The process cannot raise it beyond hard.
func LimitResource(name string, resource int, soft, hard uint64) error {
	var before unix.Rlimit
	err := unix.Prlimit(0, resource, nil, &before)
	if err == nil {
		hard = min(max(soft, hard), before.Max)
		err = unix.Prlimit(0, resource, &unix.Rlimit{Cur: min(soft, hard), Max: hard}, nil)
	}
	if err != nil {
		return fmt.Errorf("limit %s: %w", name, err)
	}
	return nil
}

// LimitMemory lets the process map more bytes in addition to those that it has mapped; hard is the
// amount to which it can raise that. It uses RLIMIT_DATA, which counts only writable memory:
// RLIMIT_AS has no useful meaning, since Go reserves address space that it never uses.
func LimitMemory(more int, hard uint64) error {
	now, err := MappedMemory("self")
	if err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return LimitResource("memory", unix.RLIMIT_DATA, now+uint64(more), hard)
}

// MappedMemory returns the number of bytes that a process has mapped, as counted by RLIMIT_DATA.
// process is its number, or "self".
func MappedMemory(process string) (bytes uint64, err error) {
	status, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nVmData:")
	now, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseUint(now, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("VmData of /proc/%s/status: %w", process, err)
	}
	return kib << 10, nil
}

// OpenDescriptors lists the open files of the process.
func OpenDescriptors() (all []int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			all = append(all, fd)
		}
	}
	return all, nil
}

// CloseInherited closes all descriptors beyond last, which the parent left open by mistake. It
// keeps files of Go's runtime, which are anonymous or belong to the cgroup.
func CloseInherited(last int) error {
	files, err := OpenDescriptors()
	if err != nil {
		return err
	}
	for _, fd := range files {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		if fd <= last || err != nil || strings.HasPrefix(name, "anon_inode:[event") || strings.HasPrefix(name, "/sys/fs/cgroup/") {
			continue
		}
		_ = unix.Close(fd)
	}
	return nil
}
