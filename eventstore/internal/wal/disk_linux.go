package wal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// buffersMax is the maximum number of buffers in one call of pwritev.
const buffersMax = 1024

// writeBuffers writes buffers back to back, starting at an offset.
func writeBuffers(f *os.File, buffers [][]byte, offset int64) error {
	return writeAll(func(some [][]byte, at int64) (int, error) { return unix.Pwritev(int(f.Fd()), some, at) }, buffers, offset)
}

// writeAll calls pwritev until all bytes are written. It modifies buffers.
func writeAll(pwritev func(buffers [][]byte, offset int64) (int, error), buffers [][]byte, offset int64) error {
	for len(buffers) > 0 {
		n, err := pwritev(buffers[:min(len(buffers), buffersMax)], offset)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		}
		offset += int64(n)
		for len(buffers) > 0 && n >= len(buffers[0]) {
			n -= len(buffers[0])
			buffers = buffers[1:]
		}
		if n > 0 {
			buffers[0] = buffers[0][n:]
		}
	}
	return nil
}

// syncData syncs a file's data and size.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// allocate sets a file's size and reserves its disk space, so that later writes allocate
// none. If the file system does not support this, it leaves the file unchanged.
func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			return nil
		case err != unix.EINTR:
			return fmt.Errorf("allocate %d bytes for %s: %w", size, f.Name(), err)
		}
	}
}
