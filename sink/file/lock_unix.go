//go:build unix

package file

import (
	"os"
	"syscall"
)

// lockFile waits for the lock. The lock belongs to the open file, so it works among
// the sinks of one process too, and ends with the process.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

func unlockFile(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
