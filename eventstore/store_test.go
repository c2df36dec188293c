//go:build linux && cgo

package eventstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// TestCloseWaitsForAppends checks that the log is not closed during an append.
func TestCloseWaitsForAppends(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	end := s.appends.begin()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	await(t, "Close waits for appends", func() bool {
		select {
		case err := <-closed:
			t.Fatalf("the store was closed: %v", err)
		default:
		}
		return s.appends.isAwaited()
	})
	end()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCloseEndsWorkers checks that Close leaves nothing running after queries and sealing.
func TestCloseEndsWorkers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close leaked files
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	ask(t, s, `SELECT count(*) FROM events`)
	seal(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
	if open := openFiles(t, folder); len(open) > 0 {
		t.Errorf("%q are open", open)
	}
}

// openFiles returns the files in a folder that the process has open or mapped.
func openFiles(t *testing.T, folder string) (open []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if name, _ := os.Readlink(filepath.Join("/proc/self/fd", file.Name())); strings.HasPrefix(name, folder) {
			open = append(open, name)
		}
	}
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mapped)) {
		if _, name, found := strings.Cut(line, folder); found {
			open = append(open, folder+strings.TrimSpace(name))
		}
	}
	return open
}

// blockManifest makes every Save fail until unblock is called.
func blockManifest(t *testing.T, folder string) (unblock func()) {
	t.Helper()
	path := filepath.Join(folder, manifest.Name)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(path, "in the way"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// isBlocked reports whether a change failed temporarily because of blockManifest.
func isBlocked(err error) bool { return errors.Is(err, syscall.EEXIST) && !event.IsPermanent(err) }

// TestFailedChange makes saving the manifest fail. The store continues with the previous
// version and reuses no number, because readers may have seen the failed version.
func TestFailedChange(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{Time: "time"})
	version, saved := s.current().Version, s.current()
	unblock := blockManifest(t, folder)
	if _, err := s.Table("other", TableConfig{}); !isBlocked(err) {
		t.Errorf("a table without a manifest: %v", err)
	}
	if s.current() != saved || s.tableNamed("other") != nil {
		t.Errorf("version %d after %d, though it was not saved; the table is %v", s.current().Version, version, s.tableNamed("other"))
	}
	if err := take(t, table).Append(t.Context(), outputOf(0, `{"time":1,"new":1}`)); !isBlocked(err) {
		t.Errorf("a row with a new column, which is not durable: %v", err)
	}
	failed := 0
	err := s.change(func(next *manifest.Manifest) error { failed = int(next.NextTable); return nil }, &garbage{remove: func() error {
		t.Error("what a change that failed lets go of was removed")
		return nil
	}})
	if !isBlocked(err) || failed != 2 {
		t.Errorf("table number %d is the next, %v", failed, err)
	}
	unblock()
	if _, err := s.Table("other", TableConfig{}); err != nil {
		t.Fatal(err)
	}
	if got := s.current().Version; got != version+4 { // three have failed
		t.Errorf("version %d follows %d and three that have failed", got, version)
	}
	appendDocs(t, take(t, table), 0, `{"time":1,"new":1}`)
	if got := ask(t, s, `SELECT count(*), sum(new) FROM events`); got != "1,1" {
		t.Errorf("rows %s", got)
	}
}

// filesBelow lists the files below a folder.
func filesBelow(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(folder, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestOpenRemovesLeftovers opens a folder with leftover files of a crash. Open removes them
// unless it is read-only.
func TestOpenRemovesLeftovers(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	seal(t, s)
	s.Close()
	before := filesBelow(t, folder)
	left := []string{"temp/write-3/x.parquet", "tables/events/undated/0000000009-0.parquet", "tables/gone/ranges-0000000001", "log/next", "log/spare"}
	for _, name := range left {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, readOnly := range []bool{true, false} {
		s, err := Open(folder, Options{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, s, `SELECT count(*) FROM events`); got != "1" {
			t.Errorf("%s rows", got)
		}
		s.Close()
		after := filesBelow(t, folder)
		for _, name := range left {
			if slices.Contains(after, name) != readOnly {
				t.Errorf("read-only %v: the folder has %q", readOnly, after)
				break
			}
		}
	}
	if diff := cmp.Diff(before, filesBelow(t, folder)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}

// TestOpenCannotRemove opens a folder with leftovers that have a path longer than the system
// allows. The store answers queries but does not start to write beside files that it cannot
// remove.
func TestOpenCannotRemove(t *testing.T) {
	folder := t.TempDir()
	openStore(t, folder).Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Join("tables", strings.Repeat(strings.Repeat("x", 255)+"/", 17)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, Options{}); !errors.Is(err, syscall.ENAMETOOLONG) || !strings.Contains(err.Error(), "remove files that no table has") {
		t.Errorf("open: %v", err)
	}
	s, err := Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestManifestBelongsToTheLog opens a store with a manifest that is missing or older than its
// log. Without an error, rows would be lost silently.
func TestManifestBelongsToTheLog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	path := filepath.Join(folder, manifest.Name)
	var earlier [][]byte
	keep := func() {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		earlier = append(earlier, text)
	}
	keep()
	p := take(t, openTable(t, s, TableConfig{}))
	keep()
	appendDocs(t, p, 0, `{"id":1}`)
	s.Close()
	want := []string{"table number 1", "schema version 2", "it is missing, but there is a log"}
	for i, text := range append(earlier, nil) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if text != nil {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(folder, Options{}); !event.IsPermanent(err) || !strings.Contains(err.Error(), want[i]) || event.HintOf(err) == "" {
			t.Errorf("manifest %d: %v, want %q", i, err, want[i])
		}
		if text == nil {
			if left, err := os.Stat(path); err == nil {
				t.Errorf("a manifest of %d bytes was made", left.Size())
			}
		}
	}
}

// TestReadOnlyRefusesChanges checks that a store opened read-only changes nothing.
func TestReadOnlyRefusesChanges(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	seal(t, s)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 1, `{"id":2}`)
	s.Close()
	list := func() []string {
		return slices.DeleteFunc(listFolder(t, folder), func(line string) bool { return strings.Contains(line, "/lock") }) // it names its owner
	}
	before := list()
	s, err := Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.UseTable("events")
	if err != nil {
		t.Fatal(err)
	}
	p := take(t, table)
	for what, err := range map[string]error{
		"an append":                   p.Append(t.Context(), outputOf(2, `{"id":3}`)),
		"an append with a new column": p.Append(t.Context(), outputOf(2, `{"new":3}`)),
		"another position":            table.SetPosition(t.Context(), "pipe", "part", 0),
	} {
		if !errors.Is(err, errReadOnly) && !errors.Is(err, wal.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Delete(t.Context(), "events", "id = 1"); !errors.Is(err, errReadOnly) {
		t.Errorf("a delete: %v", err)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "2" {
		t.Errorf("%s rows", got)
	}
	s.Close()
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("the folder (-before +after):\n%s", diff)
	}
}
