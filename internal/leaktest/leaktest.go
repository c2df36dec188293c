// Package leaktest finds what code leaves open. Its functions are for tests, one at a time in
// a process.
package leaktest

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// Closed calls f, and fails the test if files whose names begin with prefix are open after it
// that were not before. The collector, which closes files that nobody refers to, does not run
// meanwhile. Where the system does not list open files, Closed only calls f.
func Closed(t testing.TB, prefix string, f func()) {
	t.Helper()
	if resolved, err := filepath.EvalSymlinks(prefix); err == nil {
		prefix = resolved
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := map[string]int{}
	for _, name := range open(prefix) {
		before[name]++
	}
	f()
	for _, name := range open(prefix) {
		if before[name]--; before[name] < 0 {
			t.Errorf("%s is left open", name)
		}
	}
}

// open returns the names of this process's open files that begin with prefix.
func open(prefix string) (names []string) {
	const folder = "/proc/self/fd"
	all, _ := os.ReadDir(folder)
	for _, descriptor := range all {
		if name, err := os.Readlink(filepath.Join(folder, descriptor.Name())); err == nil && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}
