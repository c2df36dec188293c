package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/perigeedb/perigee/internal/durable"
)

// Files returns the paths of all files in the manifest, with their sizes; -1 is any size. Of
// files whose data have left the disk, it has the footers.
func (m *Manifest) Files(folder string) map[string]int64 {
	named := map[string]int64{}
	for _, t := range m.Tables {
		for _, f := range t.Files {
			path, size := t.diskFile(folder, f)
			named[path] = size
			if f.Bloom != "" {
				named[t.Path(folder, f.Bloom)] = -1
			}
		}
		for _, p := range t.Fingerprints {
			named[t.Path(folder, FingerprintsName(p.Number))] = -1
		}
		for _, k := range t.Keys {
			named[t.Path(folder, KeysName(k.Number))] = -1
		}
	}
	return named
}

// diskFile returns the path and size of the file that must be on disk: the data file, or its
// footer once the data have left.
func (t *Table) diskFile(folder string, f *File) (path string, size int64) {
	if f.Remote != nil {
		return t.Path(folder, FooterName(f.Name)), f.Bytes - f.Remote.Data
	}
	return t.Path(folder, f.Name), f.Bytes
}

// Verify checks the files in the manifest. It returns a *DamageError for each file that is
// missing or has the wrong size, joined.
func (m *Manifest) Verify(folder string) error {
	var errs []error
	for _, t := range m.Tables {
		for _, f := range t.Files {
			path, size := t.diskFile(folder, f)
			if reason := damageOf(path, size); reason != "" {
				errs = append(errs, &DamageError{File: path, Reason: fmt.Sprintf("%s (%d rows of table %s)", reason, f.Rows, t.Name)})
			}
		}
	}
	for path, size := range m.Files(folder) {
		if size >= 0 {
			continue
		}
		if reason := damageOf(path, size); reason != "" {
			errs = append(errs, &DamageError{File: path, Reason: reason})
		}
	}
	return errors.Join(errs...)
}

// damageOf describes the damage of a file that should have size bytes, or returns "".
func damageOf(path string, size int64) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "it is missing"
	case err != nil:
		return err.Error()
	case size >= 0 && info.Size() != size:
		return fmt.Sprintf("it has %d bytes, not %d", info.Size(), size)
	}
	return ""
}

// RemoveOthers removes table files that the manifest does not list. They are left over from a
// crash: files that never joined the store, or files that a manifest had dropped. No process
// may be reading or writing them. Files whose data have left the disk may have come back: those
// stay.
func (m *Manifest) RemoveOthers(folder string) error {
	named := m.Files(folder)
	for _, t := range m.Tables {
		for _, f := range t.Files {
			if path := t.Path(folder, f.Name); f.Remote != nil && damageOf(path, f.Bytes) == "" {
				named[path] = f.Bytes
			}
		}
	}
	var folders []string
	err := filepath.WalkDir(TablesFolder(folder), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir():
			folders = append(folders, path)
			return nil
		}
		if _, found := named[path]; found {
			return nil
		}
		return os.Remove(path)
	})
	if err != nil {
		return fmt.Errorf("remove files that no table has: %w", err)
	}
	for i := len(folders) - 1; i > 0; i-- { // children come first; the folder of all tables stays
		_ = os.Remove(folders[i]) // removes only an empty folder
	}
	return nil
}

// RemoveAll removes the table's files in the manifest, and its folder.
func (t *Table) RemoveAll(folder string) (err error) {
	alone := Manifest{Tables: []*Table{t}}
	for path := range alone.Files(folder) {
		name, _ := filepath.Rel(t.Folder(folder), path)
		err = errors.Join(err, t.RemoveFile(folder, name))
	}
	_ = os.Remove(t.Folder(folder)) // removes only an empty folder
	return err
}

// RemoveFile removes one of the table's files, and its folder if that is then empty. It
// ignores a missing file.
func (t *Table) RemoveFile(folder, name string) error {
	path := t.Path(folder, name)
	if err := durable.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(path)) // removes only an empty folder
	return nil
}
