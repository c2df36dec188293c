package deadletter

import (
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// releasePages drops the file's mapped pages from the process; they stay in the
// system's cache. Otherwise they count as the process's memory, which would grow
// with every letter. The open transaction keeps the mapping in place.
func (s *Store) releasePages() error {
	return s.db.View(func(tx *bolt.Tx) error {
		_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, s.db.Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
