package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram takes the pages of the program's code and constants out of the process's memory.
// The system maps megabytes around each that is used, mostly of DuckDB, which runs in other
// processes; what is used again comes back from the page cache. An error is of no consequence.
func releaseProgram() error {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer smaps.Close()
	for _, m := range unchangedMappings(smaps, path) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// A mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unchangedMappings returns where the process sees a file as it is: where it cannot write, and
// has not, as a linker does when it begins.
func unchangedMappings(smaps io.Reader, path string) (all []mapping) {
	var m mapping
	wanted := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") {
			wanted = len(fields) > 5 && !strings.Contains(fields[1], "w") && strings.HasSuffix(lines.Text(), " "+path)
			if n, err := fmt.Sscanf(fields[0], "%x-%x", &m.begin, &m.end); n != 2 || err != nil {
				wanted = false
			}
		}
		if wanted && fields[0] == "Anonymous:" && fields[1] == "0" {
			all = append(all, m)
		}
	}
	return all
}
