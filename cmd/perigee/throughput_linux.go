package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// favourThroughput tells the kernel that this process has batches to work through: a
// thread of it that wakes up does not push another off its processor (SCHED_BATCH). On a
// machine that it shares with its database, that saves a tenth of its processor time.
// Threads that somebody gave another policy keep it. It is a wish: where the kernel does
// not hear it, nothing is different.
func favourThroughput() {
	for _, thread := range threads() {
		attr, err := unix.SchedGetAttr(thread, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL {
			continue
		}
		attr.Policy = unix.SCHED_BATCH
		_ = unix.SchedSetAttr(thread, attr, 0)
	}
}

// threads are those of the process. One that comes to be meanwhile has the policy of
// that which made it.
func threads() (ids []int) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if id, err := strconv.Atoi(task.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
