//go:build cgo && lmdb

package coretest

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/powercut"
	"github.com/perigeedb/perigee/nodedb"
)

// TestOpenHiddenFile opens, and backs up into, folders whose file cannot be read, or is a link to a
// missing file. That is an error, and the link stays.
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

// TestRefusedBackup backs up to invalid folder names, and in a process that cannot open more files:
// that is an error, and an existing empty folder stays.
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

// smallStore creates a store with a few nodes.
func smallStore(t *testing.T, folder string) {
	t.Helper()
	s, err := nodedb.Open(folder, nodedb.Options{NoSync: true})
	if err == nil {
		err = s.Update(t.Context(), func(tx *nodedb.Tx) error {
			return errors.Join(tx.Set(nodedb.Name("^m").At(1), "one"), tx.Set(nodedb.Name("^m").At(2), strings.Repeat("2", 10_000)))
		})
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readAll reads a store by every kind of operation.
func readAll(t *testing.T, s *nodedb.Store) error {
	session, err := s.Session()
	if err != nil {
		return err
	}
	defer session.Close()
	for range 2 {
		if v, err := session.Get(nodedb.Name("^m").At(1)); err != nil || v.String() != "one" {
			return fmt.Errorf("^m(1) is %q, %v", v, err)
		}
		time.Sleep(30 * time.Millisecond) // its snapshot is released, so the next read takes a new one
	}
	if n, err := session.Count(t.Context(), nodedb.Name("^m")); err != nil || n != 2 {
		return fmt.Errorf("%d nodes, %v", n, err)
	}
	if faults, err := s.Check(func(string) {}); err != nil || faults > 0 {
		return fmt.Errorf("check: %d faults, %v", faults, err)
	}
	_, err = s.Stat()
	return errors.Join(err, s.Dump(t.Context(), io.Discard, nil), s.Backup(filepath.Join(t.TempDir(), "backup")))
}

// TestReadOnlyMedia opens stores on a read-only file system: reading works, opening for writing
// fails with a useful message.
func TestReadOnlyMedia(t *testing.T) {
	disk := powercut.SmallDisk(t, 32<<20)
	if disk == "" {
		return // the other process has reported the error
	}
	used, copied := filepath.Join(disk, "used"), filepath.Join(disk, "copied")
	smallStore(t, used)
	smallStore(t, copied)
	for _, name := range []string{"lock.mdb", "shared"} {
		if err := os.Remove(filepath.Join(copied, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{used, copied} {
		s, err := nodedb.Open(folder, nodedb.Options{ReadOnly: true})
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		if err := errors.Join(readAll(t, s), s.Close()); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		if _, err := nodedb.Open(folder, nodedb.Options{}); !errors.Is(err, nodedb.ErrDisk) || !strings.Contains(err.Error(), "Read-only file system") {
			t.Errorf("%s, to write: %v, want ErrDisk and why", folder, err)
		}
	}
	if _, err := nodedb.Open(filepath.Join(disk, "new"), nodedb.Options{}); !errors.Is(err, nodedb.ErrDisk) {
		t.Errorf("a new folder: %v, want ErrDisk", err)
	}
}

// TestOpenOnFullDisk opens stores on a full disk, without any of the files that processes share. It
// must work or fail with a disk error, and must work when there is space.
func TestOpenOnFullDisk(t *testing.T) {
	disk := powercut.SmallDisk(t, 32<<20)
	if disk == "" {
		return
	}
	folder, ballast := filepath.Join(disk, "store"), filepath.Join(disk, "ballast")
	smallStore(t, folder)
	locks := []string{"lock.mdb", "shared"}
	for _, missing := range [][]string{{"lock.mdb"}, {"shared"}, locks} {
		for _, free := range []int64{0, 4 << 10, 1 << 20} { // space for none, one or both files
			for _, name := range missing {
				os.Remove(filepath.Join(folder, name))
			}
			powercut.Fill(t, ballast, free)
			for _, readOnly := range []bool{true, false} {
				s, err := nodedb.Open(folder, nodedb.Options{ReadOnly: readOnly})
				if err == nil {
					err = errors.Join(readAll(t, s), s.Close())
				}
				if err != nil && (!errors.Is(err, nodedb.ErrDisk) || !strings.Contains(err.Error(), "No space left")) {
					t.Errorf("without %v, %d bytes free, read only %v: %v, want ErrDisk and why", missing, free, readOnly, err)
				}
			}
			_, err := nodedb.Open(filepath.Join(disk, "new"), nodedb.Options{})
			if !errors.Is(err, nodedb.ErrDisk) || !strings.Contains(err.Error(), "No space left") {
				t.Errorf("a new store with %d bytes free: %v, want ErrDisk and why", free, err)
			}
			os.RemoveAll(filepath.Join(disk, "new"))
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			s, err := nodedb.Open(folder, nodedb.Options{})
			if err == nil {
				err = errors.Join(readAll(t, s), s.Close())
			}
			if err != nil {
				t.Errorf("without %v, with room: %v", missing, err)
			}
		}
	}
}

// TestSecondOpen opens a folder that is open in this process: the new store has the requested
// options, or the error names the option that differs.
func TestSecondOpen(t *testing.T) {
	folder := t.TempDir()
	first, err := openCoreStore(folder, coreOptions{flushMs: 20, noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]coreOptions{
		"":                  {flushMs: 20, noSync: true},
		"read_only":         {flushMs: 20, noSync: true, readOnly: true},
		"flush_ms":          {noSync: true},
		"transaction_bytes": {flushMs: 20, noSync: true, transactionBytes: 1 << 20},
		"pending_bytes":     {flushMs: 20, noSync: true, pendingBytes: 1 << 20},
		"verify":            {flushMs: 20, noSync: true, verify: true},
		"no_sync":           {flushMs: 20},
	} {
		second, err := openCoreStore(folder, options)
		if want != "" && (!isCode(err, "NDB_E_ARGUMENT") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want NDB_E_ARGUMENT and %s", options, err, want)
		}
		if want == "" && err != nil {
			t.Errorf("the same options: %v", err)
		}
		if err == nil {
			second.close()
		}
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openCoreStore(folder, coreOptions{flushMs: 50}) // it is not open any more
	if err == nil {
		err = again.close()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestOpenAfterFailure checks that a failed open leaves nothing behind.
func TestOpenAfterFailure(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	file := filepath.Join(folder, "data.mdb")
	smallStore(t, folder)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{whole[:100], whole[:8192], make([]byte, len(whole))} {
		if err := os.WriteFile(file, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := nodedb.Open(folder, nodedb.Options{}); !errors.Is(err, nodedb.ErrCorrupt) || !strings.Contains(err.Error(), file) {
				t.Errorf("a damaged file of %d bytes: %v, want ErrCorrupt and %s", len(damaged), err, file)
			}
		}
		if err := os.WriteFile(file, whole, 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := nodedb.Open(folder, nodedb.Options{})
		if err == nil {
			err = errors.Join(readAll(t, s), s.Close())
		}
		if err != nil {
			t.Errorf("after a damaged file of %d bytes: %v", len(damaged), err)
		}
	}
}

func init() {
	// unwritable FOLDER: opens stores that it may read but not write.
	childWork["unwritable"] = func(arguments []string) error {
		if err := os.Chdir(arguments[0]); err != nil {
			return err
		}
		if os.Getuid() == 0 {
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		for _, name := range []string{"used", "copied"} {
			if _, err := openCoreStore(name, coreOptions{}); !isCode(err, "NDB_E_DISK") {
				return fmt.Errorf("%s, to write: %v, want NDB_E_DISK", name, err)
			}
			_, err := openCoreStore(name, coreOptions{readOnly: true})
			if !isCode(err, "NDB_E_DISK") || !strings.Contains(err.Error(), name+"/lock.mdb") {
				return fmt.Errorf("%s, to read: %v, want NDB_E_DISK and lock.mdb", name, err)
			}
		}
		fmt.Println("done")
		return nil
	}
}

// TestUnwritableFolder opens stores without write permission: that fails with a useful message.
func TestUnwritableFolder(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"used", "copied"} {
		smallStore(t, filepath.Join(folder, name))
	}
	for _, name := range []string{"lock.mdb", "shared"} {
		os.Remove(filepath.Join(folder, "copied", name))
	}
	err := filepath.Walk(folder, func(path string, about os.FileInfo, err error) error {
		return errors.Join(err, os.Chmod(path, about.Mode().Perm()&^0o222|0o444))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer filepath.Walk(folder, func(path string, _ os.FileInfo, _ error) error { return os.Chmod(path, 0o700) })
	if line := startChild(t, "unwritable", folder).read(t); line != "done" {
		t.Error(line)
	}
}

func init() {
	// unreadable FOLDER: opens and backs up stores in a folder that it may not read, with and
	// without permission to read the stores' own folders.
	childWork["unreadable"] = func(arguments []string) error {
		if err := os.Chdir(arguments[0]); err != nil {
			return err
		}
		if os.Getuid() == 0 { // root can read everything
			if err := syscall.Setuid(65534); err != nil {
				return err
			}
		}
		if _, err := os.ReadDir("."); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("the folder can be read: %v", err)
		}
		for _, mode := range []os.FileMode{0o700, 0o300} {
			name := fmt.Sprintf("mode%o", mode)
			if mode != 0o700 { // with 0o700 the store creates it
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

// TestUnreadableFolder creates, opens and backs up stores in folders that the process may not read,
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

// TestOpenFormat1 opens a store of a version without checksums. It must read and write it as that
// version does, which may still use the store.
func TestOpenFormat1(t *testing.T) {
	packed, err := os.Open("testdata/format1.mdb.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	reader, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "data.mdb")
	if err := os.WriteFile(file, content, 0o666); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := nodedb.Open(folder, nodedb.Options{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		session, err := s.Session()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if v, err := session.Get(nodedb.Name("^old").At(i)); err != nil || v.String() != fmt.Sprint("value ", i) {
				t.Fatalf("round %d: ^old(%d) is %q, %v", round, i, v, err)
			}
		}
		if v, err := session.Get(nodedb.Name("^old").At("big")); err != nil || len(v.String()) != 10_000 {
			t.Errorf("^old(\"big\") has %d bytes, %v", len(v.String()), err)
		}
		if err := session.Set(nodedb.Name("^old").At("new"), "written now"); err != nil {
			t.Error(err)
		}
		session.Close()
		if faults, err := s.Check(func(fault string) { t.Error(fault) }); err != nil || faults > 0 {
			t.Errorf("round %d: %d faults, %v", round, faults, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	content, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "new\x00\x04written now") || !strings.Contains(string(content), "perigee nodedb 1") {
		t.Error("what was written is not of format 1")
	}
}

// TestOpenFollowsNoLink puts links in place of files that a store writes in addition to its data:
// their targets must not change.
func TestOpenFollowsNoLink(t *testing.T) {
	source, err := openCoreStore(filepath.Join(t.TempDir(), "source"), coreOptions{noSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.close()
	for _, name := range []string{"shared", "lock.mdb", "data.part"} {
		folder, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
		if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Symlink(target, filepath.Join(folder, name))); err != nil {
			t.Fatal(err)
		}
		if name == "data.part" {
			err = source.backup(folder)
		} else if store, opened := openCoreStore(folder, coreOptions{noSync: true}); opened == nil {
			err = store.close()
		} else {
			err = opened
		}
		if !isCode(err, "NDB_E_DISK") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is a link: %v, want NDB_E_DISK that names it", name, err)
		}
		if text, err := os.ReadFile(target); string(text) != "precious" {
			t.Errorf("behind the link %s: %q, %v", name, text, err)
		}
	}
}

// TestOpenAfterFailedCommit writes to a meta page what a write that failed half way left in versions
// before checksums: the trees of a commit that never completed, and the number of an older one. The
// store must open with its last commit. In the page of the last commit, the same is damage.
func TestOpenAfterFailedCommit(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	smallStore(t, folder)
	path := filepath.Join(folder, "data.mdb")
	whole := readFile(t, path)
	clearMetaSums(whole)
	last := lastMeta(whole)
	for page := range 2 {
		file := slices.Clone(whole)
		setMeta(file, page, metaRoot, 1<<20)
		overwriteFile(t, path, file)
		s, err := nodedb.Open(folder, nodedb.Options{})
		if page == last {
			if !errors.Is(err, nodedb.ErrCorrupt) {
				t.Errorf("the page of the last commit is damaged: error %v, want %v", err, nodedb.ErrCorrupt)
			}
			continue
		}
		if err != nil {
			t.Errorf("the page of an older commit: %v", err)
			continue
		}
		if err := readAll(t, s); err != nil {
			t.Errorf("the page of an older commit: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenAfterOlderVersion commits as versions before checksums do, which copy the checksum of the
// commit before: the store opens, before and after further commits. The second of these is checked
// again.
func TestOpenAfterOlderVersion(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	smallStore(t, folder)
	path := filepath.Join(folder, "data.mdb")
	file := readFile(t, path)
	last := lastMeta(file)
	copy(file[last*damagePage+metaSum:][:4], file[(1-last)*damagePage+metaSum:])
	overwriteFile(t, path, file)
	for commits := range 5 {
		s, err := nodedb.Open(folder, nodedb.Options{})
		if err != nil {
			t.Fatalf("after %d commits: %v", commits, err)
		}
		if err := readAll(t, s); err != nil {
			t.Errorf("after %d commits: %v", commits, err)
		}
		err = s.Update(t.Context(), func(tx *nodedb.Tx) error { return tx.Set(nodedb.Name("^n"), commits) })
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	file = readFile(t, path)
	setMeta(file, lastMeta(file), metaNumber, metaField(file, lastMeta(file), metaNumber)-2)
	overwriteFile(t, path, file)
	if _, err := nodedb.Open(folder, nodedb.Options{}); !errors.Is(err, nodedb.ErrCorrupt) {
		t.Errorf("a damaged number: error %v, want %v", err, nodedb.ErrCorrupt)
	}
}

// TestOpenReplacesNothing damages the number of the empty state before the first commit, such that
// LMDB takes it for the last one. An open must not create an empty store in the file.
func TestOpenReplacesNothing(t *testing.T) {
	for _, sums := range []bool{true, false} {
		folder, copied := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "copied")
		smallStore(t, folder)
		s, err := nodedb.Open(folder, nodedb.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Backup(copied), s.Close()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(copied, "data.mdb")
		file := readFile(t, path)
		if !sums {
			clearMetaSums(file)
		}
		setMeta(file, 0, metaNumber, 2)
		overwriteFile(t, path, file)
		if _, err := nodedb.Open(copied, nodedb.Options{}); !errors.Is(err, nodedb.ErrCorrupt) {
			t.Errorf("checksums %v: error %v, want %v", sums, err, nodedb.ErrCorrupt)
		}
		if !slices.Equal(readFile(t, path), file) {
			t.Errorf("checksums %v: the file was changed", sums)
		}
	}
}
