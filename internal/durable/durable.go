// Package durable makes files survive a crash of the process and of the machine:
// it replaces a file atomically, syncs folders so that names survive too, and lets
// writers that come at the same time share one sync.
//
// All functions are safe for concurrent use; two writers of the same file need a
// lock of their own.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// freshSuffix ends the name of the file that WriteFile writes before it replaces
// the old one. A crash may leave one behind; the next WriteFile overwrites it.
const freshSuffix = ".new"

// WriteFile replaces the contents of a file. After a crash at any moment the file
// is either the old one or the new one, never a mixture, and once WriteFile has
// returned nil it is the new one. When the file is new, the folder must exist.
func WriteFile(name string, data []byte, perm os.FileMode) error {
	return writeFile(system{}, name, data, perm, true)
}

// WriteFileNoSync replaces the contents of a file without waiting for the disk. It
// is as atomic as WriteFile when the process crashes; when the machine does, the
// file may be the old one, the new one or empty.
func WriteFileNoSync(name string, data []byte, perm os.FileMode) error {
	return writeFile(system{}, name, data, perm, false)
}

// Remove removes a file and returns once its name is gone for good. A file that
// does not exist is os.ErrNotExist, and is then gone for good too.
func Remove(name string) error { return remove(system{}, name) }

// SyncDir makes the names in a folder durable: those of files that were created,
// renamed or removed there. Syncing a file does not do that. File systems that
// cannot sync a folder need no sync; they are no error.
func SyncDir(folder string) error { return syncDir(system{}, folder) }

// MkdirAll makes a folder and those above it, like os.MkdirAll, and makes the names
// of the new ones durable.
func MkdirAll(folder string, perm os.FileMode) error { return mkdirAll(system{}, folder, perm) }

// OpenFile is os.OpenFile for a file with a name of ours in a folder of ours: it opens the file
// itself. Somebody who could put a link there would otherwise have another file read, or cut off.
func OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag|syscall.O_NOFOLLOW, perm)
	if errors.Is(err, syscall.ELOOP) {
		err = fmt.Errorf("%w: %s is a link, which is not followed: remove it, or put the file in its place", err, name)
	}
	return file, err
}

// Open is OpenFile to read.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Map opens a file as Open does and maps its contents for reading. Release them with
// syscall.Munmap.
func Map(name string) ([]byte, error) {
	file, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	return mapped, os.NewSyscallError("mmap", err)
}

// ReadFile is os.ReadFile of what Open opens.
func ReadFile(name string) ([]byte, error) {
	file, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// A fileSystem is what this package needs of the operating system. The tests put
// one in its place that records the order of calls and loses what was not synced.
type fileSystem interface {
	OpenFile(name string, flag int, perm os.FileMode) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	Mkdir(name string, perm os.FileMode) error
	IsDir(name string) bool
}

type file interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

type system struct{}

func (system) OpenFile(name string, flag int, perm os.FileMode) (file, error) {
	if flag&os.O_CREATE == 0 { // a folder, which may be a link
		return os.OpenFile(name, flag, perm)
	}
	return OpenFile(name, flag, perm)
}
func (system) Rename(from, to string) error { return os.Rename(from, to) }
func (system) Remove(name string) error     { return os.Remove(name) }

func (system) Mkdir(name string, perm os.FileMode) error { return os.Mkdir(name, perm) }

func (system) IsDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// writeFile syncs the contents before it renames, because a file system may write
// a rename to disk before the data of the file, and the folder after it, because
// until then a crash undoes the rename.
func writeFile(fs fileSystem, name string, data []byte, perm os.FileMode, sync bool) error {
	fresh := name + freshSuffix
	f, err := fs.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fs.Rename(fresh, name)
	}
	if err == nil && sync {
		err = syncDir(fs, filepath.Dir(name))
	}
	return err
}

func remove(fs fileSystem, name string) error {
	err := fs.Remove(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// A file that does not exist may be one that an earlier call removed, whose sync failed.
	if syncErr := syncDir(fs, filepath.Dir(name)); syncErr != nil && (err == nil || !errors.Is(syncErr, os.ErrNotExist)) {
		return syncErr
	}
	return err
}

func syncDir(fs fileSystem, folder string) error {
	dir, err := fs.OpenFile(folder, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("sync folder %s: %w", folder, err)
	}
	return nil
}

func mkdirAll(fs fileSystem, folder string, perm os.FileMode) error {
	above := filepath.Dir(folder)
	if fs.IsDir(folder) {
		return syncExisting(fs, above)
	}
	if above != folder {
		if err := mkdirAll(fs, above, perm); err != nil {
			return err
		}
	}
	err := fs.Mkdir(folder, perm)
	if errors.Is(err, os.ErrExist) && fs.IsDir(folder) { // another process was faster
		err = nil
	}
	if err != nil {
		return err
	}
	return syncDir(fs, above)
}

// syncExisting syncs the folder that an existing one is in: the process that made it may have
// been killed before it did. A folder that this process may not read is not of its making.
func syncExisting(fs fileSystem, above string) error {
	err := syncDir(fs, above)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}
