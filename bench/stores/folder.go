package stores

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MakeFolder makes a temporary folder for stores, on a disk.
func MakeFolder(pattern string) (string, error) {
	folder, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", err
	}
	var system unix.Statfs_t
	if err = unix.Statfs(folder, &system); err == nil && system.Type == unix.TMPFS_MAGIC {
		err = fmt.Errorf("%s is in memory, where a sync costs nothing: set TMPDIR to a folder on a disk", folder)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(folder))
	}
	return folder, nil
}
