//go:build !linux

package powercut

import "testing"

// SmallDisk skips the test: it needs Linux.
func SmallDisk(t *testing.T, bytes int) (folder string) {
	t.Skip("only Linux lets a test mount a disk of its own")
	return ""
}

// Fill is only called on a disk of SmallDisk.
func Fill(t testing.TB, path string, but int64) {}
