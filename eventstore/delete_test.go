//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// TestDelete deletes rows in files and in the log.
func TestDelete(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	rows := func(first int, user string) []string {
		return numbered(first, 100, day, fmt.Sprintf(`,"user":%q`, user))
	}
	appendDocs(t, p, 0, rows(0, "mallory-in-a-file")...)
	appendDocs(t, p, 100, rows(100, "bob")...)
	seal(t, s)
	appendDocs(t, p, 200, rows(200, "mallory-in-a-file")...)
	appendDocs(t, p, 300, numbered(300, 5, day, "")...) // user is null

	deletion, err := s.Delete(context.Background(), "events", `"user" = 'mallory-in-a-file' -- comment`)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, `SELECT count(*), min(id) FROM events`); got != "105,100" {
		t.Errorf("at once: %s", got)
	}
	appendDocs(t, p, 305, rows(305, "mallory-in-a-file")[:3]...) // appended later
	if got := ask(t, s, `SELECT count(*) FROM events WHERE "user" LIKE 'mallory%'`); got != "3" {
		t.Errorf("rows that came after the delete: %s", got)
	}
	if err := waitDeleted(t, s, deletion); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := ask(t, s, `SELECT count(*), min(id), count(*) FILTER ("user" LIKE 'mallory%') FROM events`); got != "108,100,3" {
			t.Errorf("afterwards: %s", got)
		}
		s.Close()
		s = openStore(t, folder)
	}
	if len(runningDeletes(s)) > 0 {
		t.Errorf("got running deletes %+v, want none", runningDeletes(s))
	}
}

// TestDeleteWithoutLog waits for deletes that begin while the log is empty.
func TestDeleteWithoutLog(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`, `{"a":2}`, `{"a":3}`)
	for a := 1; a <= 2; a++ {
		deletion, err := s.Delete(t.Context(), "events", fmt.Sprintf("a = %d", a))
		if err != nil {
			t.Fatal(err)
		}
		if err := waitDeleted(t, s, deletion); err != nil {
			t.Fatalf("delete %d: %v", deletion.Number, err)
		}
	}
	if got := ask(t, s, `SELECT sum(a) FROM events`); got != "3" {
		t.Errorf("afterwards: %s", got)
	}
}

// TestCancelDelete cancels deletes of rows in the log and in files at various times. From
// then on queries must see the remaining rows, and none of them may disappear.
func TestCancelDelete(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	if _, err := s.CancelDelete("events", 1); !event.IsPermanent(err) || !strings.Contains(err.Error(), "delete 1 of table events is not running") {
		t.Errorf("cancel what nobody asked for: %v", err)
	}
	const rounds, rows = 12, 50
	next, canceled := uint64(0), 0
	for round := range rounds {
		for range 2 { // rows in files, and in the log
			appendDocs(t, p, next, slices.Repeat([]string{`{"a":1}`}, rows)...)
			if next += rows; next%(2*rows) != 0 {
				seal(t, s)
			}
		}
		d, err := s.Delete(t.Context(), "events", "a = 1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		without, err := s.CancelDelete("events", d.Number)
		left := ask(t, s, `SELECT count(*) FROM events`)
		if err != nil {
			if left != "0" {
				t.Errorf("round %d: carried out, %s rows are left: %v", round, left, err)
			}
			continue
		}
		canceled++
		if without == 0 && left == "0" {
			t.Errorf("round %d: all rows are gone, and no file was written without them", round)
		}
		if err := waitDeleted(t, s, d); !errors.Is(err, ErrCanceled) {
			t.Errorf("round %d: the wait returns %v, want %v", round, err, ErrCanceled)
		}
		seal(t, s)
		time.Sleep(100 * time.Millisecond) // detects a compactor that wrongly continues
		if got := ask(t, s, `SELECT count(*) FROM events`); got != left {
			t.Errorf("round %d: %s rows after %s", round, got, left)
		}
		if round%4 == 0 {
			s.Close()
			s = openStore(t, folder)
			if got := ask(t, s, `SELECT count(*) FROM events`); got != left || len(runningDeletes(s)) > 0 {
				t.Errorf("round %d: opened again: %s rows after %s, deletes %v", round, got, left, runningDeletes(s))
			}
			p = take(t, openTable(t, s, TableConfig{}))
		}
	}
	if canceled == 0 {
		t.Error("no delete was canceled")
	}
}

// TestDeleteOfCanceledContext checks that nothing is deleted.
func TestDeleteOfCanceledContext(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{Columns: declared(event.Int64, "x")})), 0, `{"x":1}`)
	s.SetComputed([]ComputedColumn{times("x", "1", 10)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Delete(ctx, "events", "true"); !errors.Is(err, context.Canceled) {
		t.Errorf("a delete: %v", err)
	}
	if _, err := s.Recompute(ctx, "events", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("a recompute: %v", err)
	}
	if got := ask(t, s, `SELECT x FROM events`); got != "1" || len(runningDeletes(s)) > 0 {
		t.Errorf("the table has %q, deletes %v", got, runningDeletes(s))
	}
}

// TestFailedDelete makes saving the manifest fail during a delete of rows in no
// file. That must be an error, so that the compactor logs it and retries.
func TestFailedDelete(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`, `{"a":2}`)
	blockTables(t, folder) // the log remains, and the delete with it
	if _, err := s.Delete(t.Context(), "events", "a = 1"); err != nil {
		t.Fatal(err)
	}
	awaitFailedSeal(t, s)
	s.changing.Lock() // the compactor may be saving the manifest
	unblock := blockManifest(t, folder)
	s.changing.Unlock()
	if err := s.rewriteForDeletes(t.Context()); !isBlocked(err) {
		t.Errorf("without a manifest: %v", err)
	}
	s.changing.Lock()
	unblock()
	s.changing.Unlock()
	if err := s.rewriteForDeletes(t.Context()); err != nil {
		t.Error(err)
	}
	if got := ask(t, s, `SELECT sum(a) FROM events`); got != "2" || len(runningDeletes(s)) != 1 {
		t.Errorf("rows %s, and deletes %v", got, runningDeletes(s))
	}
}

// TestDeletedBytesGo searches every file for a deleted text.
func TestDeletedBytesGo(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	const secret = "a7f3c9d1e5b2"
	appendDocs(t, p, 0, `{"id":1,"text":"`+secret+`"}`, `{"id":2,"text":"other"}`)
	if n := filesWith(t, folder, secret); n == 0 {
		t.Fatal("the text is in no file before")
	}
	deletion, err := s.Delete(context.Background(), "events", `id = 1`)
	if err != nil {
		t.Fatal(err)
	}
	if err := waitDeleted(t, s, deletion); err != nil {
		t.Fatal(err)
	}
	if n := filesWith(t, folder, secret); n > 0 {
		t.Errorf("the text is in %d files afterwards", n)
	}
	if got := ask(t, s, `SELECT id FROM events`); got != "2" {
		t.Errorf("rows %s", got)
	}
}

// TestDeletedBytesGoFromTheLog deletes rows in a log file that is removed and reused for new
// files.
func TestDeletedBytesGoFromTheLog(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(folder, Options{SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := take(t, openTable(t, s, TableConfig{}))
	const secret = "a7f3c9d1e5b2"
	appendDocs(t, p, 0, `{"id":1,"text":"`+secret+`"}`)
	for first := uint64(1); s.current().LogStart < 2 && first < 1000; first++ { // more than the maximum backlog
		appendDocs(t, p, first, fmt.Sprintf(`{"id":%d,"text":"%s"}`, first+1, strings.Repeat("other", 1000)))
	}
	deletion, err := s.Delete(context.Background(), "events", `id = 1`)
	if err != nil {
		t.Fatal(err)
	}
	if err := waitDeleted(t, s, deletion); err != nil {
		t.Fatal(err)
	}
	if n := filesWith(t, folder, secret); n > 0 {
		t.Errorf("the text is in %d files afterwards", n)
	}
}

// waitDeleted waits until no file has rows of a delete.
func waitDeleted(t *testing.T, s *Store, d catalog.Delete) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.WaitDeleted(ctx, d)
}

func filesWith(t *testing.T, folder, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // it may have been removed meanwhile
		}
		if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, []byte(text)) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPredicatesAreChecked(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	for _, predicate := range []string{
		``, `nowhere = 1`, `id`, `id = `, `id = 1; DROP TABLE events`, `id IN (SELECT 1)`, `random() > 0.5`, `count(*) > 0`, `read_text('/etc/passwd') = 'x'`,
	} {
		if _, err := s.Delete(context.Background(), "events", predicate); err == nil {
			t.Errorf("%q was taken", predicate)
		} else if _, ok := errors.AsType[*event.Fault](err); !ok {
			t.Errorf("%q: %v, want an *event.Fault", predicate, err)
		}
	}
	if _, err := s.Delete(context.Background(), "none", `id = 1`); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("deleting rows of an unknown table: %v", err)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "1" {
		t.Errorf("%s rows", got)
	}
}

// TestDeleteOfNothing runs a delete that matches no row. It must end without rewriting a
// file.
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

// TestWaitDeletedWaitsForItsFiles waits for a delete while a file of its table is being
// removed, and while a file of another table cannot be removed. It must wait only for the
// first.
func TestWaitDeletedWaitsForItsFiles(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1}`, `{"id":2}`)
	seal(t, s)
	other, err := s.Table("other", TableConfig{})
	if err != nil {
		t.Fatal(err)
	}
	drop := func(table uint32, remove func() error) {
		t.Helper()
		if err := s.change(func(*manifest.Manifest) error { return nil }, &garbage{table: table, remove: remove}); err != nil {
			t.Fatal(err)
		}
	}
	drop(other.id, func() error { return errors.New("in use") })
	held := s.snapshot()
	d, err := s.Delete(t.Context(), "events", "id = 1")
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the delete is done", func() bool { return len(runningDeletes(s)) == 0 })
	removing, proceed := make(chan struct{}), make(chan struct{})
	drop(p.table.id, func() error { close(removing); <-proceed; return nil })
	held.release()
	<-removing
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := s.WaitDeleted(short, d); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a file of the table is removed: %v", err)
	}
	close(proceed)
	if err := waitDeleted(t, s, d); err != nil {
		t.Errorf("while a file of another table cannot be removed: %v", err)
	}
}

func TestIsCarriedOut(t *testing.T) {
	m := &manifest.Manifest{LogStart: 5}
	file := func(deleted uint64) *manifest.Table {
		return &manifest.Table{Files: []*manifest.File{{Deleted: 9}, {Deleted: deleted}}}
	}
	for _, test := range []struct {
		before wal.Position
		table  *manifest.Table
		want   bool
	}{
		{wal.Position{File: 4, Offset: 900}, &manifest.Table{}, true},
		{wal.Position{File: 5, Offset: 128}, &manifest.Table{}, true},
		{wal.Position{File: 5, Offset: 136}, &manifest.Table{}, false},
		{wal.Position{File: 4, Offset: 900}, file(3), true},
		{wal.Position{File: 4, Offset: 900}, file(2), false},
	} {
		if got := isCarriedOut(m, test.table, &manifest.Delete{Number: 3, Before: test.before}); got != test.want {
			t.Errorf("delete 3 before %v is carried out: %v", test.before, got)
		}
	}
}
