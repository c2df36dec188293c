//go:build cgo

package eventstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockFolder makes this process the owner of folder until the file is closed.
// DuckDB's own lock would not do: it does not hold within one process, and two
// instances on one file destroy it.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("eventstore: lock %s: %w", folder, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, configError("one engine owns a data folder: stop that process, or use another folder",
				"%s is in use by process %s", folder, readPID(file))
		}
		return nil, fmt.Errorf("eventstore: lock %s: %w", folder, err)
	}
	if err := writePID(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("eventstore: lock %s: %w", folder, err)
	}
	return file, nil
}

// writePID names this process for the error that the next one gets.
func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

func readPID(file *os.File) string {
	pid, _ := io.ReadAll(io.LimitReader(file, 20))
	if len(pid) == 0 {
		return "(unknown)"
	}
	return strings.TrimSpace(string(pid))
}
