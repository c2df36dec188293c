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
	"strings"
	"testing"
	"time"
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
	appendDocs(t, p, 305, rows(305, "mallory-in-a-file")[:3]...) // came later
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
	if len(s.Deletions()) > 0 {
		t.Errorf("still under way: %v", s.Deletions())
	}
}

// TestDeleteWithoutLog waits for deletes that are asked when no row is in the log.
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

// TestFailedUpkeepOfDeletes lets the manifest fail to be saved while a delete of rows in no file is
// under way: that is an error, so that the upkeep is logged and retried.
func TestFailedUpkeepOfDeletes(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`, `{"a":2}`)
	blockTables(t, folder) // the log stays, and the delete with it
	if _, err := s.Delete(t.Context(), "events", "a = 1"); err != nil {
		t.Fatal(err)
	}
	awaitFailedSeal(t, s)
	s.changing.Lock() // the upkeep may save the manifest just now
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
	if got := ask(t, s, `SELECT sum(a) FROM events`); got != "2" || len(s.Deletions()) != 1 {
		t.Errorf("rows %s, and deletes %v", got, s.Deletions())
	}
}

// TestDeletedBytesGo looks for a deleted text in every file.
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

// TestDeletedBytesGoFromTheLog deletes what stood in a file of the log that was removed, and of
// which the log makes new ones.
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
	for first := uint64(1); s.current().LogStart < 2 && first < 1000; first++ { // more than wait to be sealed
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
func waitDeleted(t *testing.T, s *Store, d Deletion) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.WaitDeleted(ctx, d)
}

func filesWith(t *testing.T, folder, text string) (n int) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // it may have gone meanwhile
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
		} else if _, ok := errors.AsType[*QueryError](err); !ok {
			t.Errorf("%q: %v, want a *QueryError", predicate, err)
		}
	}
	if _, err := s.Delete(context.Background(), "none", `id = 1`); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("deleting rows of an unknown table: %v", err)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "1" {
		t.Errorf("%s rows", got)
	}
}
