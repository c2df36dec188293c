package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/internal/durable"
)

// A durableFS is the library's local file system, but its files and their names are durable once
// they are written. The library syncs nothing, so a power cut could leave a table whose newest
// metadata is empty, or names manifests that are.
type durableFS struct{ iceio.LocalFS }

func init() { // the library finds file systems by scheme
	for _, scheme := range []string{"", "file"} {
		iceio.Unregister(scheme)
		iceio.Register(scheme, func(context.Context, *url.URL, map[string]string) (iceio.IO, error) { return durableFS{}, nil })
	}
}

// folderOf returns the folder of a file that the library names by its path or address.
func folderOf(name string) string {
	if strings.HasPrefix(name, "file:") {
		name, _ = localPath(name)
	}
	return filepath.Dir(name)
}

func (fs durableFS) Create(name string) (iceio.FileWriter, error) {
	if err := durable.MkdirAll(folderOf(name), 0o755); err != nil {
		return nil, err
	}
	w, err := fs.LocalFS.Create(name)
	if err != nil {
		return nil, err
	}
	return &durableFile{w.(*os.File)}, nil
}

func (fs durableFS) WriteFile(name string, content []byte) error {
	w, err := fs.Create(name)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}

func (fs durableFS) Rename(from, to string) error {
	if err := fs.LocalFS.Rename(from, to); err != nil {
		return err
	}
	return durable.SyncDir(folderOf(to))
}

func (fs durableFS) RenameNoReplace(from, to string) error {
	if err := fs.LocalFS.RenameNoReplace(from, to); err != nil {
		return err
	}
	return durable.SyncDir(folderOf(to))
}

func (durableFS) MkdirAll(name string) error {
	return durable.MkdirAll(filepath.Join(folderOf(name), filepath.Base(name)), 0o755)
}

// A durableFile is durable once it is closed.
type durableFile struct{ *os.File }

func (f *durableFile) Close() error {
	if err := errors.Join(f.Sync(), f.File.Close()); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(f.Name()))
}

// syncMetadata makes the name of a table's newest metadata durable, if it is in a folder: the
// committer that wrote it may have been killed before it did.
func syncMetadata(t *table.Table) error {
	path, local := localPath(t.MetadataLocation())
	if !local {
		return nil
	}
	return durable.SyncDir(filepath.Dir(path))
}
