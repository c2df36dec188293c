//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/publishing"
)

// reopen opens the store in a folder of newLocal again.
func reopen(t *testing.T, folder string, o Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(folder, "store"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// forgetLooks makes the store ask its lakes again what other engines have changed.
func forgetLooks(s *Store) {
	s.lakes.mu.Lock()
	defer s.lakes.mu.Unlock()
	clear(s.lakes.looked)
}

// changeEntry changes a table of the manifest.
func changeEntry(t *testing.T, s *Store, change func(next *manifest.Manifest, entry *manifest.Table)) {
	t.Helper()
	err := s.change(func(next *manifest.Manifest) error {
		change(next, next.Table("events"))
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// TestLakeManyQueries runs more queries than may wait for a slow lake at once: none waits for ever, nor
// does one without a lake.
func TestLakeManyQueries(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, folder, Options{Queries: 1, QueryTime: time.Minute})
	openTable(t, s, localConfig(folder))
	s.lakes.looking <- struct{}{} // the lake is slow
	var queries sync.WaitGroup
	for range fetchingFactor + 3 {
		queries.Go(func() {
			if got, err := askFor(t, s, time.Minute, sumIDs); err != nil || fmt.Sprint(got) != "["+want+"]" {
				t.Errorf("got %s and %v, want %s", got, err, want)
			}
		})
	}
	for len(s.fetching) < cap(s.fetching) {
		time.Sleep(time.Millisecond)
	}
	if got, err := askFor(t, s, time.Minute, "SELECT 1"); err != nil {
		t.Errorf("a query that needs no lake: %s, %v", got, err)
	}
	<-s.lakes.looking // it answers now
	queries.Wait()
}

// TestLakeRewrittenMeanwhile has a report say that another engine has rewritten a file or deleted rows of
// it, while the store rewrites the same file for a delete: its rows are not the store's again afterwards.
func TestLakeRewrittenMeanwhile(t *testing.T) {
	for name, where := range map[string]string{"rows of the file": "id IN (1, 2, 3, 4, 5, 6)", "no rows of it": "id = -5", "delete files": "id IN (1, 2, 3, 4, 5, 6)"} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newLocal(t, 0, 3000)
			s.rewriting.Lock() // as a rewrite that takes long
			d, err := s.Delete(t.Context(), "events", where)
			if err != nil {
				t.Fatal(err)
			}
			file, id := "", s.current().Table("events").ID
			for file == "" {
				time.Sleep(10 * time.Millisecond)
				s.lakes.mu.Lock()
				if f := s.lakes.fetches[id]; f != nil && f.inUse && f.pinned != nil {
					file = f.file
				}
				s.lakes.mu.Unlock()
			}
			changeEntry(t, s, func(_ *manifest.Manifest, entry *manifest.Table) {
				if name == "delete files" {
					known := *entry.Lake
					known.Deletes, entry.Lake = 1, &known
					return
				}
				for i, f := range entry.Files {
					if f.Name == file {
						gone := *f
						gone.Gone = true
						entry.Files[i] = &gone
					}
				}
			})
			s.rewriting.Unlock()
			if name == "delete files" {
				if err := s.awaitChange(t.Context(), func() bool { return s.fetchError(s.current().Table("events")) != nil }); err != nil {
					t.Fatal(err)
				}
				if remote, _ := remoteFiles(s); !slices.ContainsFunc(remote, func(f *manifest.File) bool { return f.Name == file }) {
					t.Error("a file of which another engine deletes rows is the store's again")
				}
				return
			}
			if err := s.WaitDeleted(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			lost := 0
			entry := s.current().Table("events")
			for _, f := range entry.Files {
				if entry.HasLost(f) {
					lost++
				}
			}
			if lost != 1 {
				t.Errorf("%d files have rows that are no longer the store's, want 1", lost)
			}
			expectFault(t, s, sumIDs, "another engine")
		})
	}
}

// TestLakeSetTimeOfOthers changes the time column of a table in a slow lake: a delete of another table
// does not wait for that.
func TestLakeSetTimeOfOthers(t *testing.T) {
	s, _, _ := newLocal(t, 0, 3000)
	other, err := s.Table("other", TableConfig{})
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, other), 0, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	s.lakes.looking <- struct{}{} // the lake is slow
	forgetLooks(s)
	ended := make(chan error, 1)
	go func() {
		ended <- s.SetTime(t.Context(), "events", TimeColumn{Name: "id", Unit: event.Seconds})
	}()
	time.Sleep(100 * time.Millisecond)
	d, err := s.Delete(t.Context(), "other", "id = 1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lookTime/2)
	defer cancel()
	if err := s.WaitDeleted(ctx, d); err != nil {
		t.Errorf("the delete of a table without a lake: %v", err)
	}
	<-s.lakes.looking
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLakeFetchedOnce changes the time column of a table with many newer files on disk: each file of the
// lake is fetched for that once.
func TestLakeFetchedOnce(t *testing.T) {
	s, folder, _ := newLocal(t, 0, 3000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, folder, Options{LakeCache: 1 << 10}) // keeps nothing
	p := take(t, openTable(t, s, localConfig(folder)))
	for day := range 30 {
		appendDocs(t, p, uint64(3000+day), fmt.Sprintf(`{"id":%d,"moment":%d,"kind":"new"}`, 90000+day, 1795000000000000000+int64(day)*86400e9))
	}
	seal(t, s)
	remote, _ := remoteFiles(s)
	fetches := countFetches(t, s, remote)
	err := s.SetTime(t.Context(), "events", TimeColumn{Name: "id", Unit: event.Seconds})
	if err == nil {
		err = s.WaitDivided(t.Context(), "events")
	}
	// SetTime reads each file, and then the file is divided.
	if got, want := fetches(), 2*len(remote); err != nil || got > want {
		t.Errorf("got %d fetches of %d files and error %v, want at most %d", got, len(remote), err, want)
	}
}

// countFetches returns a function that counts how often files of the lake have been put on disk.
func countFetches(t *testing.T, s *Store, files []*manifest.File) func() int {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(watch) })
	entry, names := s.current().Table("events"), map[string]bool{}
	for _, f := range files {
		path := entry.Path(s.folder, f.Name)
		names[filepath.Base(path)] = true
		if _, err := unix.InotifyAddWatch(watch, filepath.Dir(path), unix.IN_MOVED_TO); err != nil {
			t.Fatal(err)
		}
	}
	return func() (n int) {
		events := make([]byte, 1<<20)
		size, err := unix.Read(watch, events)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		for events = events[:max(size, 0)]; len(events) > 0; {
			length := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			if names[unix.ByteSliceToString(events[unix.SizeofInotifyEvent:length])] {
				n++
			}
			events = events[length:]
		}
		return n
	}
}

// TestLakeFull has so many rewritten files wait for a lake that refuses them, that no more are fetched: a
// delete, and a change that waits for it, say why.
func TestLakeFull(t *testing.T) {
	s, folder, _ := newLocal(t, 0, 3000)
	p := take(t, openTable(t, s, localConfig(folder)))
	appendDocs(t, p, 3000, `{"id":90001,"moment":1795000000000000000,"kind":"new"}`)
	seal(t, s)
	s.compacting.Lock()
	changeEntry(t, s, func(next *manifest.Manifest, entry *manifest.Table) {
		known := *entry.Lake
		known.Error, known.Hint, entry.Lake = "the token is refused", "set PERIGEE_LAKE_TOKEN", &known
		for i, f := range entry.Files {
			if f.Remote == nil {
				big := *f
				next.LastStep++
				big.Bytes, big.Step = 2<<30, next.LastStep
				entry.Files[i] = &big
			}
		}
	})
	s.compacting.Unlock()
	if _, err := s.Delete(t.Context(), "events", "id = 5"); err != nil {
		t.Fatal(err)
	}
	const hint = "set PERIGEE_LAKE_TOKEN"
	if err := s.DropColumn(t.Context(), "events", "amount"); err == nil || !strings.Contains(err.Error(), "the token is refused") || event.HintOf(err) != hint {
		t.Errorf("drop a column: %v, hint %q", err, event.HintOf(err))
	}
	tables, err := s.Tables()
	if err != nil || !strings.Contains(tables[0].Deletes[0].Error, "the token is refused") || tables[0].Deletes[0].Hint != hint {
		t.Errorf("the delete: %+v, %v", tables[0].Deletes, err)
	}
}

// TestLakeTakenOver publishes a table where another one was, whose data are still only there: it waits
// until they have come back, and no object of them goes before.
func TestLakeTakenOver(t *testing.T) {
	s, folder, want := newLocal(t, 0, 3000)
	id := s.current().Table("events").ID
	s.lakes.mu.Lock()
	s.lakes.fetches[id] = &lakeFetch{file: "slow"} // a fetch that takes long
	s.lakes.mu.Unlock()
	plain := localConfig(folder)
	plain.Lake = nil
	openTable(t, s, plain)
	other, err := s.Table("other", lakeConfig(folder))
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, other), 0, `{"id":1,"moment":1764200000000000000,"kind":"a"}`)
	seal(t, s)
	later := time.Now().Add(48 * time.Hour)
	if err := s.publish(t.Context(), later); err == nil || !strings.Contains(err.Error(), "rows only there") {
		t.Errorf("publishing a table where another one has its data: %v", err)
	}
	changeEntry(t, s, func(next *manifest.Manifest, _ *manifest.Table) { // the other lock, without the first
		entry := next.Table("other")
		known := *entry.Lake
		known.Location, known.Tidied, entry.Lake = "file://"+filepath.Join(remoteAddress(s), "../../.."), time.Time{}, &known
		order := publishing.Prepare(next.Clone(), s.folder, s.opening, later)
		if order != nil && order.Tables[0].Tidy != nil {
			t.Error("its lake is tidied, where objects of another table are")
		}
	})
	s.lakes.mu.Lock()
	delete(s.lakes.fetches, id)
	s.lakes.mu.Unlock()
	wake(s.compactor)
	back := func() bool { files, _ := remoteFiles(s); return len(files) == 0 }
	if err := s.awaitChange(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := s.publish(t.Context(), later); err != nil {
		t.Errorf("publishing after the data have come back: %v", err)
	}
	if got := ask(t, s, sumIDs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// remoteAddress returns the address of an object that the events have only in the lake.
func remoteAddress(s *Store) string {
	files, _ := remoteFiles(s)
	return files[0].Remote.Address
}

// TestCloseDuringSetTime closes a store while its lake is asked for SetTime, and opens it again: the answer,
// which is late, changes nothing that belongs to the next store.
func TestCloseDuringSetTime(t *testing.T) {
	s, folder, _ := newLocal(t, 0, 3000)
	real, bin := os.Getenv("PERIGEE_LAKE"), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ntrap '' TERM\ncat >%[1]s/order\n: >%[1]s/begun\nwhile [ ! -e %[1]s/gate ]; do sleep 0.05; done\nexec %s \"$@\" <%[1]s/order\n", bin, real)
	if err := os.WriteFile(filepath.Join(bin, "perigee-lake"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	changeEntry(t, s, func(_ *manifest.Manifest, entry *manifest.Table) { // which the report will change
		known := *entry.Lake
		known.Deletes, entry.Lake = 1, &known
	})
	forgetLooks(s)
	ended := make(chan error, 1)
	change := func() {
		ended <- s.SetTime(context.Background(), "events", TimeColumn{Name: "id", Unit: event.Seconds})
	}
	go change()
	for _, err := os.Stat(filepath.Join(bin, "begun")); err != nil; _, err = os.Stat(filepath.Join(bin, "begun")) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := reopen(t, folder, Options{})
	fresh, err := next.Table("fresh", TableConfig{})
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, fresh), 0, `{"id":1}`)
	seal(t, next)
	if err := os.WriteFile(filepath.Join(bin, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	go change()
	for range 2 {
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("a closed store changes its time column: %v", err)
		}
	}
	nothing := func(*manifest.Manifest) error { return nil }
	if err := s.change(nothing, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed store changes its manifest: %v", err)
	}
	m, err := manifest.Load(filepath.Join(folder, "store"))
	if err != nil || m.Table("fresh") == nil || m.Version != next.current().Version {
		t.Errorf("the closed store has written the manifest of the next one: %v", err)
	}
}

// TestLakeDividedBesideRecompute changes the time column of a table of which a file on disk waits for a
// recompute that fails: the files in the lake do not wait for it.
func TestLakeDividedBesideRecompute(t *testing.T) {
	s, folder, _ := newLocal(t, 0, 3000)
	appendDocs(t, take(t, openTable(t, s, localConfig(folder))), 3000, `{"id":90001,"moment":1795000000000000000,"kind":"new"}`)
	seal(t, s)
	s.SetComputed([]ComputedColumn{{Table: "events", Name: "twice", Version: func() string { return "1" }, Compute: func(context.Context, *event.Batch, *event.Result) error {
		return errors.New("the service is away")
	}}})
	if _, err := s.Recompute(t.Context(), "events", "twice"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetTime(t.Context(), "events", TimeColumn{Name: "id", Unit: event.Seconds}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitDivided(ctx, "events"); err != nil {
		t.Error(err)
	}
}

// TestLakesSwapped has two tables exchange their lake tables: both are published again.
func TestLakesSwapped(t *testing.T) {
	useCommitter(t)
	folder := t.TempDir()
	s := reopen(t, folder, Options{})
	first, second := lakeConfig(folder), lakeConfig(folder)
	first.Lake.Table, second.Lake.Table = "test.first", "test.second"
	declare := func(first, second TableConfig) {
		t.Helper()
		for name, config := range map[string]TableConfig{"first": first, "second": second} {
			if _, err := s.Table(name, config); err != nil {
				t.Fatal(err)
			}
		}
	}
	declare(first, second)
	for i, name := range []string{"first", "second"} {
		appendDocs(t, take(t, s.tableNamed(name)), 0, fmt.Sprintf(`{"id":%d,"moment":1795000000000000000,"kind":"new"}`, i))
	}
	seal(t, s)
	publish := func() {
		t.Helper()
		if err := s.publish(t.Context(), time.Now().Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	aside := second
	lake := *second.Lake
	lake.Table, aside.Lake = "test.aside", &lake
	if _, err := s.Table("second", aside); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Table("first", second); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Table("second", first); err != nil {
		t.Fatal(err)
	}
	publish()
	for name, want := range map[string]string{"first": "test.second", "second": "test.first"} {
		if l := s.current().Table(name).Lake; l.Table != want || l.UUID == "" || l.Error != "" {
			t.Errorf("%s: got %+v, want it in %s", name, l, want)
		}
	}
}
