//go:build unix

package file

import (
	"fmt"
	"io/fs"
	"syscall"
)

// inode returns the device and the inode of a file.
func inode(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%x-%x", uint64(s.Dev), s.Ino)
	}
	return info.Name()
}
