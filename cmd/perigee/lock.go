package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/perigeedb/perigee/event"
)

// lockName is the file in the data folder that its owner keeps locked. The lock
// goes with the process, however it ends.
const lockName = "perigee.lock"

// own makes the data folder when it is absent and takes it for this process
// alone, until the returned file is closed.
func own(data string) (io.Closer, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(data, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = errors.Join(file.Truncate(0), writeProcess(file))
	}
	if err == nil {
		return file, nil
	}
	defer file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock data folder %s: %w", data, err)
	}
	return nil, event.WithHint(fmt.Errorf("data folder %s is in use by %s", data, owner(file)),
		"one engine owns a data folder: stop that process, or set data to another folder")
}

func writeProcess(file *os.File) error {
	_, err := file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return err
}

// owner names the process that holds the lock.
func owner(file *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(text)); pid != "" {
		return "process " + pid
	}
	return "another process"
}
