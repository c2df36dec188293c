package deadletter

import (
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// release unmaps the pages of the file that were looked at, which stay in the
// system's cache. Kept, they would count as the process's memory, and that would
// grow with every letter. While a transaction is open the file stays mapped where
// it is.
func (s *Store) release() error {
	return s.db.View(func(tx *bolt.Tx) error {
		_, _, failed := syscall.Syscall(syscall.SYS_MADVISE, s.db.Info().Data, uintptr(tx.Size()), syscall.MADV_DONTNEED)
		if failed != 0 {
			return failed
		}
		return nil
	})
}
