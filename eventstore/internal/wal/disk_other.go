//go:build !linux

package wal

import "os"

// writeBuffers writes buffers back to back, starting at an offset.
func writeBuffers(f *os.File, buffers [][]byte, offset int64) error {
	for _, b := range buffers {
		n, err := f.WriteAt(b, offset)
		if err != nil {
			return err
		}
		offset += int64(n)
	}
	return nil
}

// syncData syncs a file.
func syncData(f *os.File) error { return f.Sync() }

// allocate does nothing: the file grows as it is written.
func allocate(*os.File, int64) error { return nil }
