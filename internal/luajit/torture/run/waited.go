//go:build cgo

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// waits has, for each thread of this process, how long it has waited for a
// processor so far. It is empty where the kernel does not say.
func waits() map[string]time.Duration {
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

// starved is for how long the machine kept that thread waiting which waited most
// since then: so much of a delay is not the limit's.
func starved(before map[string]time.Duration) time.Duration {
	var most time.Duration
	for thread, waited := range waits() {
		most = max(most, waited-before[thread])
	}
	return most
}
