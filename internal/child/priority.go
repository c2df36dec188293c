//go:build linux

package child

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// LowerPriority sets the nice value of all threads of a process, named as in /proc, if they
// have a lower one. Threads that they start inherit it.
func LowerPriority(process string, nice int) {
	for range 2 { // again, for threads started meanwhile
		threads, _ := os.ReadDir("/proc/" + process + "/task")
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if now, err := unix.Getpriority(unix.PRIO_PROCESS, id); err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, max(nice, 20-now)) // the system call returns 20 - nice
			}
		}
	}
}
