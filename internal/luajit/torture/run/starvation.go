//go:build cgo && luajit

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// threadWaits returns how long each thread of this process has waited for a processor so far. It is
// empty if the kernel does not count that.
func threadWaits() map[string]time.Duration {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	waits := make(map[string]time.Duration, len(files))
	for _, file := range files {
		var ran, delayed int64
		text, _ := os.ReadFile(file)
		fmt.Sscan(string(text), &ran, &delayed)
		waits[file] = time.Duration(delayed)
	}
	return waits
}

// longestWait returns the longest time that a thread has waited for a processor since before was
// taken. The machine, not the engine, causes that part of a delay.
func longestWait(before map[string]time.Duration) time.Duration {
	var longest time.Duration
	for thread, waited := range threadWaits() {
		longest = max(longest, waited-before[thread])
	}
	return longest
}
