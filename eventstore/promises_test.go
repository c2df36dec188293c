//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// TestSealWaitsForAppends holds that a file of the log is not sealed, and then removed, while
// an append that stands in it is not accounted for: its range would be forgotten.
func TestSealWaitsForAppends(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	end := sync.OnceFunc(s.appends.begin()) // as logChange does from before the frame is in the log
	defer end()
	if err := s.log.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the sealer waits for appends", func() bool {
		if s.current().LogStart > 1 {
			t.Fatal("the file was sealed")
		}
		return s.appends.isAwaited()
	})
	if start := s.current().LogStart; start != 1 {
		t.Errorf("the log begins at file %d", start)
	}
	end()
	await(t, "the file is sealed", func() bool { return s.current().LogStart > 1 })
}

// TestCloseWaitsForAppends holds that the log is not closed under an append.
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

// TestCloseEndsWorkers holds that nothing of a store that has answered and sealed runs on.
func TestCloseEndsWorkers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close files that are left open
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

// isBlocked reports whether a change failed because of blockManifest, for now.
func isBlocked(err error) bool { return errors.Is(err, syscall.EEXIST) && !event.IsPermanent(err) }

// TestFailedChange lets the manifest fail to be saved: the store goes on with the one before,
// and no number is used twice, because readers may have seen what failed.
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
	if err := take(t, table).Append(t.Context(), output(0, `{"time":1,"new":1}`)); !isBlocked(err) {
		t.Errorf("a row with a new column, which is not durable: %v", err)
	}
	failed := 0
	err := s.change(func(next *manifest.Manifest) error { failed = int(next.NextTable); return nil }, func() error {
		t.Error("what a change that failed lets go of was removed")
		return nil
	})
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

// TestGarbageStays removes what no reader needs, again if that has failed, and not before
// readers of earlier versions have ended.
func TestGarbageStays(t *testing.T) {
	s := openStore(t, t.TempDir())
	var tries atomic.Int32
	earlier := s.snapshot()
	remove := func() error {
		if tries.Add(1) == 1 {
			return errors.New("refused")
		}
		return nil
	}
	if err := s.change(func(*manifest.Manifest) error { return nil }, remove); err != nil {
		t.Fatal(err)
	}
	later := s.snapshot()
	if got := s.takeGarbage(); len(got) != 0 {
		t.Fatalf("%d pieces of garbage while an earlier reader runs", len(got))
	}
	earlier.release()
	earlier.release() // twice is once
	await(t, "the garbage is gone", func() bool {
		wake(s.sealer)
		return tries.Load() == 2
	})
	later.release()
	wake(s.sealer)
	if err := s.collectGarbage(); err != nil || tries.Load() != 2 {
		t.Errorf("removed %d times, %v", tries.Load(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pins) != 0 || len(s.garbage) != 0 {
		t.Errorf("pins %v and %d pieces of garbage are left", s.pins, len(s.garbage))
	}
}

// filesBelow lists the files below a folder.
func filesBelow(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it has gone meanwhile
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

// TestOpenRemovesLeftovers opens a folder in which a crash has left files that belong to
// nothing: they go, unless the folder is opened read-only.
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

// TestOpenCannotRemove opens a folder with leftovers whose path is longer than the system takes:
// the store does not begin to write beside what it cannot remove, but answers queries.
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

// TestManifestBelongsToTheLog opens a store whose manifest is missing, or older than its log:
// rows would silently be gone.
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

// TestSetPositionForgetsFingerprints holds that positions which were forgotten do not come back
// with the fingerprints that a file has of them.
func TestSetPositionForgetsFingerprints(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	appendPrinted(t, take(t, table), 0, 100)
	seal(t, s)
	if err := table.SetPosition(t.Context(), "pipe", "part", 50); err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		have, err := committedRanges(table, "pipe", "part")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(event.Ranges{{Count: 50}}, withoutPrints(have)); diff != "" {
			t.Errorf("step %d: committed (-want +got):\n%s", step, diff)
		}
		if step == 0 {
			seal(t, s)
		}
		if step == 1 {
			s.Close()
			s = openStore(t, folder)
			table = openTable(t, s, TableConfig{})
		}
	}
}

// TestSealedFilesAreForgotten holds that what a store keeps of a file of the log goes with it:
// changes, versions of the schema, and fingerprints that are too old.
func TestSealedFilesAreForgotten(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	for i := range uint64(4) {
		appendPrinted(t, p, 10*i, 10)
		seal(t, s)
		err := s.change(func(next *manifest.Manifest) error {
			for n, f := range next.Tables[0].Prints {
				old := *f
				old.Written = old.Written.Add(-printAge)
				next.Tables[0].Prints[n] = &old
			}
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	table.mu.Lock()
	if state := table.state(p.key); len(state.logged) != 0 || len(table.schemasOf) != 0 || len(table.encoding) != 0 || len(state.appending) != 0 {
		t.Errorf("%d changes and schemas %v of files that are gone; %d appends with %v", len(state.logged), table.schemasOf, len(state.appending), table.encoding)
	}
	table.mu.Unlock()
	await(t, "old files of fingerprints are gone", func() bool {
		wake(s.sealer)
		n := 0
		for _, name := range filesBelow(t, manifest.TablesFolder(folder)) {
			if strings.Contains(name, "ranges-") {
				n++
			}
		}
		return n == len(s.current().Tables[0].Prints) && n == 1
	})
}

// TestSchemaInUseStays holds that a version of the schema stays in the manifest while an append
// encodes with it, though no file and no frame has it.
func TestSchemaInUseStays(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendDocs(t, p, 0, `{"a":1}`)
	old := table.current().Version
	release, again := table.holdSchema(old), table.holdSchema(old)
	appendDocs(t, p, 1, `{"b":1}`)
	seal(t, s)
	drop := func() bool {
		t.Helper()
		all := map[string]bool{}
		for _, f := range filesOf(s) {
			all[f.Name] = true
		}
		if err := s.replaceFiles(table.id, all, nil); err != nil {
			t.Fatal(err)
		}
		return s.current().Table("events").Schema(old) != nil
	}
	if !drop() {
		t.Error("the version that two appends use is gone")
	}
	release()
	if !drop() {
		t.Error("the version that an append uses is gone")
	}
	again()
	if drop() {
		t.Error("the version that nobody uses is there")
	}
}

// TestFailedAppendEndsItsReservation repeats an append that was cancelled, and takes over: both
// would wait for ever.
func TestFailedAppendEndsItsReservation(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	appendDocs(t, p, 0, `{"id":0}`)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Append(canceled, output(1, `{"id":1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled append: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := p.Append(ctx, output(0, `{"id":0}`, `{"id":1}`)); err != nil {
		t.Fatal(err)
	}
	_, have, err := table.TakeOver(ctx, "pipe", "part")
	if err != nil || !cmp.Equal(event.Ranges{{Count: 2}}, withoutPrints(have)) {
		t.Errorf("the new owner has %v, %v", have, err)
	}
	if got := ask(t, s, `SELECT string_agg(id, ' ' ORDER BY id) FROM events`); got != "0 1" {
		t.Errorf("rows %s", got)
	}
}

func TestOverlaps(t *testing.T) {
	all := []event.Range{{First: 10, Count: 10}, {First: 40, Count: 1}}
	for _, test := range []struct {
		first, count uint64
		want         bool
	}{{0, 10, false}, {0, 11, true}, {20, 20, false}, {19, 1, true}, {12, 2, true}, {0, 100, true}, {41, 5, false}, {40, 1, true}, {39, 1, false}} {
		if got := overlapsAny(event.Range{First: test.first, Count: test.count}, all); got != test.want {
			t.Errorf("%d events from %d on: %v", test.count, test.first, got)
		}
	}
}

// TestRetentionKeepsYoungRows holds that a file goes when all of its rows are too old, with its
// bloom filters, and stays whole before.
func TestRetentionKeepsYoungRows(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time", Event: "kind", Retention: 100 * 365 * 24 * time.Hour}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, append(numbered(0, 10, day, `,"kind":"a"`), numbered(10, 10, day.Add(20*time.Hour), `,"kind":"b"`)...)...)
	seal(t, s)
	retention := 100 * 365 * 24 * time.Hour
	last := day.Add(20*time.Hour + 9*time.Millisecond) // of the newest row
	for _, now := range []time.Time{day.Add(10 * time.Hour), last} {
		if err := s.removeOldFiles(now.Add(retention)); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, s, `SELECT count(*) FROM events`); got != "20" {
			t.Errorf("%s rows when the newest is %v younger than the retention", got, last.Sub(now))
		}
	}
	if n := len(filesBelow(t, manifest.TablesFolder(folder))); n != 2 {
		t.Errorf("%d files instead of rows and their bloom filter", n)
	}
	if err := s.removeOldFiles(last.Add(retention + time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	await(t, "the files are gone", func() bool {
		wake(s.sealer)
		return len(filesBelow(t, manifest.TablesFolder(folder))) == 0
	})
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "0" {
		t.Errorf("%s rows", got)
	}
}

// TestWhatIsMerged holds that small files of one day are merged when there are enough of them,
// and others are not.
func TestWhatIsMerged(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for i := range mergeMin - 1 {
		appendDocs(t, p, uint64(20*i), append(numbered(20*i, 10, day, ""), numbered(20*i+10, 10, day.AddDate(0, 0, 1), "")...)...)
		seal(t, s)
	}
	before := filesOf(s)
	if err := s.mergeSmallFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, filesOf(s)); diff != "" || len(before) != 2*(mergeMin-1) {
		t.Errorf("%d files, three of a day (-before +after):\n%s", len(before), diff)
	}
}

// TestDeleteOfNothing ends a delete that no row matches, and writes no file again.
func TestDeleteOfNothing(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, append(numbered(0, 10, day, ""), numbered(10, 10, day.AddDate(0, 0, 1), "")...)...)
	seal(t, s)
	var names []string
	for _, f := range filesOf(s) {
		names = append(names, f.Name)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for _, predicate := range []string{`id < 0`, `id = 15`} {
		d, err := s.Delete(ctx, "events", predicate)
		if err == nil {
			err = s.WaitDeleted(ctx, d)
		}
		if err != nil {
			t.Fatalf("%s: %v", predicate, err)
		}
		kept := 0
		for _, f := range filesOf(s) {
			if slices.Contains(names, f.Name) {
				kept++
			}
		}
		if want := map[string]int{`id < 0`: 2, `id = 15`: 1}[predicate]; kept != want || len(filesOf(s)) != 2 {
			t.Errorf("%s: %d of %d files are as before, want %d", predicate, kept, len(filesOf(s)), want)
		}
	}
	if got := ask(t, s, `SELECT count(*), count(*) FILTER (id = 15) FROM events`); got != "19,0" {
		t.Errorf("rows %s", got)
	}
	if len(s.current().Table("events").Deletes) != 0 {
		t.Error("deletes that are done are still in the manifest")
	}
}

// TestReadOnlyRefusesChanges holds that a store which was opened read-only changes nothing.
func TestReadOnlyRefusesChanges(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	seal(t, s)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 1, `{"id":2}`)
	s.Close()
	list := func() []string {
		return slices.DeleteFunc(listFolder(t, folder), func(line string) bool { return strings.Contains(line, "/lock") }) // names its owner
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
		"an append":                   p.Append(t.Context(), output(2, `{"id":3}`)),
		"an append with a new column": p.Append(t.Context(), output(2, `{"new":3}`)),
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
