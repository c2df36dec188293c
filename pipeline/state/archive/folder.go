package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/durable"
)

// A folder is a Place on a disk, which workers may share.
type folder string

// partPrefix begins the names of files that are being written.
const partPrefix = ".part-"

// partsKept is how long a file that is being written stays if its writer was killed.
const partsKept = 24 * time.Hour

func (f folder) String() string { return string(f) }

func (f folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

func (f folder) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("archive %s: %w", f, err)
}

// Put implements Place. The file gets its name once it is synced. Several processes may write the
// same object, so each has a file of its own.
func (f folder) Put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := f.path(name)
	old, err := durable.ReadFile(path)
	if err == nil && !bytes.Equal(old, data) {
		err = &fs.PathError{Op: "write", Path: path, Err: errOtherContents}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		// The process that wrote it may have been killed before it synced the folder.
		return f.wrap(errors.Join(err, durable.SyncDir(filepath.Dir(path))))
	}
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return f.wrap(err)
	}
	part, err := os.CreateTemp(filepath.Dir(path), partPrefix+"*")
	if err != nil {
		return f.wrap(err)
	}
	_, err = part.Write(data)
	if err == nil {
		err = part.Sync()
	}
	err = errors.Join(err, part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		return f.wrap(errors.Join(err, os.Remove(part.Name())))
	}
	return f.wrap(durable.SyncDir(filepath.Dir(path)))
}

// Get implements Place.
func (f folder) Get(ctx context.Context, name string, maxBytes int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := durable.Open(f.path(name))
	if err != nil {
		return nil, f.wrap(err)
	}
	defer file.Close()
	data, err := readAll(file, name, maxBytes)
	return data, f.wrap(err)
}

func readAll(from io.Reader, name string, maxBytes int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err == nil && int64(len(data)) > maxBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxBytes)
	}
	return data, err
}

// List implements Place.
func (f folder) List(ctx context.Context, folder, after string, visit func(Object) error) error {
	top := f.path(folder)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, or there is none yet
			return nil
		}
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), partPrefix) {
			return err
		}
		inFolder, err := filepath.Rel(top, path)
		name := filepath.ToSlash(inFolder)
		if err != nil || name <= after {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return visit(Object{Name: name, Size: info.Size(), Modified: info.ModTime()})
	})
	return f.wrap(err)
}

// Remove implements Place.
func (f folder) Remove(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.wrap(err)
	}
	return nil
}

// tidy removes files in a folder whose writers were killed, and empty folders in it.
func (f folder) tidy(folder string) error {
	err := filepath.WalkDir(f.path(folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() && !strings.HasPrefix(entry.Name(), partPrefix) {
			return err
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < partsKept {
			return err
		}
		_ = os.Remove(path) // a folder with files stays
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.wrap(err)
}
