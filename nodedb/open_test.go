//go:build cgo && lmdb

package nodedb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpenHiddenFile opens and backs up into folders whose file cannot be looked at, or is a link
// to a file that is not there now. That is an error, and the link stays.
func TestOpenHiddenFile(t *testing.T) {
	source, err := openCoreStore(filepath.Join(t.TempDir(), "source"), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.close()
	open := func(folder string, options coreOptions) error {
		store, err := openCoreStore(folder, options)
		if err != nil {
			return err
		}
		return store.close()
	}
	for _, test := range []struct{ target, readOnly string }{
		{"data.mdb", "NDB_E_DISK"}, // it cannot be followed
		{"unmounted/data.mdb", "NDB_E_ARGUMENT"},
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, "data.mdb")
		if err := os.Symlink(test.target, file); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"open":   open(folder, coreOptions{}),
			"backup": source.backup(folder),
		} {
			if !isCode(err, "NDB_E_DISK") || !strings.Contains(err.Error(), file) {
				t.Errorf("a link to %s: %s: %v", test.target, what, err)
			}
		}
		if err := open(folder, coreOptions{readOnly: true}); !isCode(err, test.readOnly) {
			t.Errorf("a link to %s: open to read: %v", test.target, err)
		}
		if is, err := os.Readlink(file); is != test.target {
			t.Errorf("the link to %s was replaced: %q, %v", test.target, is, err)
		}
	}
}

// TestRefusedBackup backs up to names that no folder can have, and where the process may open no
// more files: that is an error, and an empty folder that was there before stays.
func TestRefusedBackup(t *testing.T) {
	store, err := openCoreStore(filepath.Join(t.TempDir(), "store"), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	for _, folder := range []string{"", strings.Repeat("x", 4001)} {
		if err := store.backup(folder); !isCode(err, "NDB_E_ARGUMENT") {
			t.Errorf("a folder whose name has %d bytes: %v", len(folder), err)
		}
	}
	folder := t.TempDir()
	limit := func(l syscall.Rlimit) {
		t.Helper()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	var usual syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	limit(syscall.Rlimit{Cur: 3, Max: usual.Max})
	err = store.backup(folder)
	made := store.backup(filepath.Join(folder, "made"))
	limit(usual)
	for _, err := range []error{err, made} {
		if !isCode(err, "NDB_E_DISK") || !strings.Contains(err.Error(), "open files") {
			t.Errorf("no more files: %v", err)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("a failed backup leaves %v, %v", left, err)
	}
}

func init() {
	// unreadable FOLDER: opens and backs up stores in a folder that it may not read, with and
	// without a right to read their own.
	childWork["unreadable"] = func(arguments []string) error {
		if err := os.Chdir(arguments[0]); err != nil {
			return err
		}
		if os.Getuid() == 0 { // root reads everything
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		if _, err := os.ReadDir("."); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("the folder can be read: %v", err)
		}
		for _, mode := range []os.FileMode{0o700, 0o300} {
			name := fmt.Sprintf("mode%o", mode)
			if mode != 0o700 { // else the store makes it
				if err := errors.Join(os.Mkdir(name, mode), os.Mkdir(name+".backup", mode)); err != nil {
					return err
				}
			}
			for range 2 {
				store, err := openCoreStore(name, coreOptions{})
				if err != nil {
					return err
				}
				if err := store.close(); err != nil {
					return err
				}
			}
			store, err := openCoreStore(name, coreOptions{})
			if err == nil {
				err = errors.Join(store.backup(name+".backup"), store.close())
			}
			if err != nil {
				return err
			}
		}
		fmt.Println("done")
		return nil
	}
}

// TestUnreadableFolder makes, opens and backs up stores in folders that the process may not read,
// and therefore cannot sync.
func TestUnreadableFolder(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o333); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(folder, 0o700)
	if line := startChild(t, "unreadable", folder).read(t); line != "done" {
		t.Error(line)
	}
}
