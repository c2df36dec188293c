package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CheckDir returns an error if MkdirAll(folder) would fail, or if files could not be
// created in the folder. It changes nothing.
func CheckDir(folder string) error {
	for at := filepath.Clean(folder); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue // look at what it would be created in
		case err != nil:
			return fmt.Errorf("folder %s cannot be used: %w", folder, err)
		case !info.IsDir():
			return fmt.Errorf("folder %s cannot be used: %s is not a folder", folder, at)
		}
		const write, search = 2, 1
		if err := syscall.Access(at, write|search); err != nil {
			return fmt.Errorf("folder %s cannot be used: no permission to write to %s", folder, at)
		}
		return nil
	}
}
