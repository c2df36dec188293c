// Package datafolder locks the data folder of an engine, so that one process at a time
// owns it, and names the files in it that other processes use. Its functions are safe for
// concurrent use.
package datafolder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// SocketName is the name of the socket on which the engine serves commands.
const SocketName = "perigee.sock"

// lockName is the file that the owner of the folder keeps locked. The kernel releases the
// lock when the process ends in any way, and its last child that had not yet begun its own
// program: until then the child has a copy of the descriptor.
const lockName = "perigee.lock"

// Locking waits for an owner that is about to end: a command that found no engine in the
// folder, or the child of a killed process.
const (
	ownerPatience = time.Second
	lockRetry     = 5 * time.Millisecond
)

// Lock creates the folder if it does not exist, and locks it for this process until the
// returned Closer is closed. For a folder with another owner see LockFile. If others could
// change the folder, or a later version has written it, the error is a *FolderError. An older
// format of the folder is raised to Format.
func Lock(folder string) (io.Closer, error) {
	if err := durable.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	lock, err := LockFile(folder, lockName)
	if err != nil {
		return nil, err
	}
	if err := raiseFormat(folder); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// LockFile locks a folder through the file name in it, until the returned Closer is closed.
// If another owner, in this or another process, holds the lock for a second, the error is
// an *InUseError. If others could change the folder, or a later version has written it, it is a
// *FolderError.
func LockFile(folder, name string) (io.Closer, error) {
	if err := Check(folder); err != nil {
		return nil, err
	}
	file, err := durable.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err = waitLocked(file); err == nil {
		err = errors.Join(file.Truncate(0), writePID(file))
	}
	if err == nil {
		return &lockedFile{file}, nil
	}
	defer file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock data folder %s: %w", folder, err)
	}
	return nil, &InUseError{Folder: folder, Owner: ownerOf(file)}
}

// waitLocked locks a file, or returns EWOULDBLOCK if its owner does not release it.
func waitLocked(file *os.File) error {
	for end := time.Now().Add(ownerPatience); ; time.Sleep(lockRetry) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
	}
}

// A lockedFile is a file that this process has locked.
type lockedFile struct{ file *os.File }

// Close unlocks the file explicitly, because a child process that is just being started may
// still hold a copy of the descriptor, and with it the lock.
func (l *lockedFile) Close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

// An InUseError is returned for a folder that another owner has locked.
type InUseError struct {
	Folder string
	Owner  string // such as "process 17"
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("data folder %s is in use by %s", e.Folder, e.Owner)
}

// ErrorHint implements event.Hinter.
func (e *InUseError) ErrorHint() string {
	return "only one process can own a data folder: stop that process, or set data to another folder"
}

// Used reports whether the folder has been locked before.
func Used(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, lockName))
	return err == nil
}

func writePID(file *os.File) error {
	_, err := file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return err
}

// ownerOf returns the name of the process that holds the lock.
func ownerOf(file *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(text)); pid != "" {
		return "process " + pid
	}
	return "another process"
}
