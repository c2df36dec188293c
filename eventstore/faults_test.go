//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// The tests in this file are named after the faults of TalariaDB that they check for.

// numbered returns n documents with an id, a time and further fields.
func numbered(first, n int, at time.Time, more string) []string {
	docs := make([]string, n)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d,"time":%q%s}`, first+i, at.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano), more)
	}
	return docs
}

// TestF1MixedTypesInABatch: one event with a fraction in an integer column lost the whole
// batch, and the client received success.
func TestF1MixedTypesInABatch(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	docs := make([]string, 100)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d,"x":1}`, i)
	}
	docs[50] = `{"id":50,"x":0.5}`
	appendDocs(t, p, 0, docs...)
	if got := ask(t, s, `SELECT count(*), sum(x) FROM events`); got != "100,99.5" {
		t.Errorf("got %s", got)
	}
	strict, err := s.Table("strict", TableConfig{Columns: []event.Column{{Name: "x", Path: []string{"x"}, Type: event.Int64}}})
	if err != nil {
		t.Fatal(err)
	}
	err = take(t, strict).Append(context.Background(), outputOf(0, docs...))
	if rejected, ok := errors.AsType[*RejectedRows](err); !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 50 {
		t.Errorf("a declared column: %v, want row 50 rejected", err)
	}
}

// TestF2EventsWithoutTheEventColumn: events without the sort column, or with a value in it
// that is not text, were dropped.
func TestF2EventsWithoutTheEventColumn(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Event: "event"}))
	appendDocs(t, p, 0, `{"id":1,"event":"a"}`, `{"id":2}`, `{"id":3,"event":null}`, `{"id":4,"event":7}`, `{"id":5,"event":{"b":1}}`)
	for range 2 {
		if got := ask(t, s, `SELECT count(*), count(event), sum(id) FROM events`); got != "5,3,15" {
			t.Errorf("got %s", got)
		}
		seal(t, s)
	}
}

// TestF3NoRetentionKeepsRows: without a retention, rows expired immediately.
func TestF3NoRetentionKeepsRows(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{Time: "time"})), 0, numbered(0, 10, time.Unix(0, 0).UTC(), "")...)
	seal(t, s)
	if err := s.removeOldFiles(time.Now().AddDate(1000, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "10" {
		t.Errorf("%s rows", got)
	}
}

// TestF4ColumnsOfAllEvents: the last block's columns hid those of all others, and after a
// restart there were no columns.
func TestF4ColumnsOfAllEvents(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"kind":"a","x":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"kind":"b","y":2}`)
	for range 2 {
		if got := ask(t, s, `SELECT string_agg(kind, '' ORDER BY kind), sum(x), sum(y) FROM events`); got != "ab,1,2" {
			t.Errorf("got %s", got)
		}
		s.Close()
		s = openStore(t, folder)
	}
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 2, `{"kind":"c","x":3}`)
	if got := ask(t, s, `SELECT string_agg(kind, '' ORDER BY kind), sum(x), sum(y) FROM events`); got != "abc,4,2" {
		t.Errorf("with an event after the restart: %s", got)
	}
}

// TestF5LateEventsAreFound: events were filed by arrival time, so filters on their own time
// missed them.
func TestF5LateEventsAreFound(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	appendDocs(t, p, 0, numbered(0, 10, now, "")...)
	seal(t, s)
	appendDocs(t, p, 10, numbered(10, 10, now.Add(-2*time.Hour), "")...)
	for range 2 {
		if got := ask(t, s, `SELECT min(id), count(*) FROM events WHERE time >= '2026-11-22 23:00:00' AND time < '2026-11-22 23:30:00'`); got != "10,10" {
			t.Errorf("the late events: %s", got)
		}
		if got := ask(t, s, `SELECT min(id), count(*) FROM events WHERE time >= '2026-11-23 00:59:00'`); got != "0,10" {
			t.Errorf("the others: %s", got)
		}
		seal(t, s)
	}
}

// TestF6FilesDoNotOverwrite: files of the same hour had the same name.
func TestF6FilesDoNotOverwrite(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for i := range 3 {
		appendDocs(t, p, uint64(100*i), numbered(100*i, 100, day, "")...)
		seal(t, s)
	}
	names := map[string]bool{}
	for _, f := range filesOf(s) {
		names[f.Name] = true
		if f.Day != "2026-11-23" || !strings.HasPrefix(f.Name, f.Day+"/") {
			t.Errorf("file %s of day %s", f.Name, f.Day)
		}
	}
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != "300,300" || len(names) != 3 {
		t.Errorf("%s rows in files %v", got, names)
	}
}

// TestF7NothingGoesWithoutAFile: rows were deleted from the hot store before any file had
// them.
func TestF7NothingGoesWithoutAFile(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	appendDocs(t, p, 0, numbered(0, 100, time.Now(), "")...)
	block := blockTables(t, folder)
	failSeal(t, s)
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "100" {
		t.Errorf("%s rows while nothing can be written", got)
	}
	s.Close()
	os.Remove(block)
	s = openStore(t, folder)
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "100" {
		t.Errorf("%s rows after opening again", got)
	}
}

// blockTables puts a file in place of the tables' folder.
func blockTables(t *testing.T, folder string) string {
	t.Helper()
	path := manifest.TablesFolder(folder)
	os.Remove(path)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// failSeal closes the active log file and waits until sealing it has failed.
func failSeal(t *testing.T, s *Store) {
	t.Helper()
	if err := s.log.Rotate(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitFailedSeal(t, s)
}

func awaitFailedSeal(t *testing.T, s *Store) {
	t.Helper()
	await(t, "sealing fails", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.backlog.err != nil
	})
}

// TestF8AFileInTheWay: a file in place of a folder was overwritten, or received the rows.
func TestF8AFileInTheWay(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	appendDocs(t, p, 0, numbered(0, 100, time.Now(), "")...)
	block := blockTables(t, folder)
	failSeal(t, s)
	if text, err := os.ReadFile(block); err != nil || len(text) > 0 {
		t.Errorf("the file in the way has %d bytes, %v", len(text), err)
	}
	os.Remove(block)
	wake(s.sealer)
	await(t, "the rows are written, as the file is gone", func() bool { return len(filesOf(s)) > 0 })
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != "100,100" {
		t.Errorf("rows %s", got)
	}
}

// TestF9LaterColumnsSurviveMerges: a merged file had only the first file's columns, and
// unreadable files were deleted.
func TestF9LaterColumnsSurviveMerges(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for i := range mergeMin {
		appendDocs(t, p, uint64(100*i), numbered(100*i, 100, day, fmt.Sprintf(`,"extra%d":%d`, i, i))...)
		seal(t, s)
	}
	wake(s.compactor)
	waitUntil(t, s, func() bool { return len(filesOf(s)) == 1 })
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id), count(extra0), count(extra3), sum(extra3) FROM events`); got != "400,400,100,100,300" {
		t.Errorf("got %s", got)
	}
	// Damage is reported and never taken for an empty file.
	path := s.current().Table("events").Path(folder, filesOf(s)[0].Name)
	s.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := Open(folder, Options{})
	if !event.IsPermanent(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "400 rows of table events") {
		t.Errorf("a store without its file: %v", err)
	}
	s, err = Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Damage() == nil {
		t.Error("damage of a damaged store: got none, want some")
	}
}

// TestF15AColumnThatManyRowsLack: a query on a block of more than 25,000 rows without the
// column returned nothing.
func TestF15AColumnThatManyRowsLack(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	docs := make([]string, 30_001)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d}`, i)
	}
	appendDocs(t, p, 0, docs...)
	appendDocs(t, p, uint64(len(docs)), `{"id":-1,"rare":"x"}`)
	for range 2 {
		if got := ask(t, s, `SELECT count(*), count(rare), count(id) FILTER (rare IS NULL) FROM events`); got != "30002,1,30001" {
			t.Errorf("got %s", got)
		}
		seal(t, s)
	}
}

// TestF17RetentionDropsFiles: expired rows were deleted one by one, with a full scan.
func TestF17RetentionDropsFiles(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{Time: "time", Retention: 24 * time.Hour}))
	now := time.Now()
	appendDocs(t, p, 0, numbered(0, 100, now, "")...)
	appendDocs(t, p, 100, numbered(100, 100, now.Add(-72*time.Hour), "")...)
	seal(t, s)
	waitUntil(t, s, func() bool { return len(filesOf(s)) == 1 && len(diskFiles(t, folder)) == 1 })
	if got := ask(t, s, `SELECT count(*), max(id) FROM events`); got != "100,99" {
		t.Errorf("got %s", got)
	}
	if have, err := committedRanges(openTable(t, s, TableConfig{Time: "time", Retention: 24 * time.Hour}), "pipe", "part"); err != nil || !have.Covers(0, 200) {
		t.Errorf("positions of removed rows were forgotten: %v, %v", have, err)
	}
}

// diskFiles lists the Parquet files on the disk.
func diskFiles(t *testing.T, folder string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(manifest.TablesFolder(folder), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".parquet") {
			paths = append(paths, path)
		}
		return nil // it may have been removed meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestF18CloseWhileSealing: closing ran a second compaction beside the first, which wrote
// rows twice.
func TestF18CloseWhileSealing(t *testing.T) {
	folder := t.TempDir()
	for round := range 5 {
		s := openStore(t, folder)
		p := take(t, openTable(t, s, TableConfig{Time: "time"}))
		appendDocs(t, p, uint64(100*round), numbered(100*round, 100, time.Now(), "")...)
		if err := s.log.Rotate(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round*round) * 5 * time.Millisecond)
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("closing took %v", took)
		}
	}
	s := openStore(t, folder)
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM events`); got != "500,500" {
		t.Errorf("rows %s", got)
	}
}

// TestF19ARetryDoesNotRepeat: when one of several targets failed, each retry sent the rows to
// the others again.
func TestF19ARetryDoesNotRepeat(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	for _, name := range []string{"first", "second"} {
		table, err := s.Table(name, TableConfig{Time: "time"})
		if err != nil {
			t.Fatal(err)
		}
		appendDocs(t, take(t, table), 0, numbered(0, 100, time.Now(), "")...)
	}
	if err := os.MkdirAll(manifest.TablesFolder(folder), 0o700); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(manifest.TablesFolder(folder), "second")
	if err := os.WriteFile(block, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	failSeal(t, s)
	for range 3 {
		s.setBacklog(nil)
		wake(s.sealer)
		awaitFailedSeal(t, s)
	}
	os.Remove(block)
	wake(s.sealer)
	await(t, "the rows are written, as the file is gone", func() bool { return len(s.current().Table("second").Files) > 0 })
	for _, name := range []string{"first", "second"} {
		if got := ask(t, s, `SELECT count(*), count(DISTINCT id) FROM `+name); got != "100,100" {
			t.Errorf("rows of %s: %s", name, got)
		}
	}
}

// TestF22TypesSurviveFiles: files could not hold bools and timestamps, and stored doubles as
// floats.
func TestF22TypesSurviveFiles(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Columns: []event.Column{
		{Name: "small", Path: []string{"small"}, Type: event.Int32}, {Name: "price", Path: []string{"price"}, Type: event.Decimal},
	}}))
	appendDocs(t, p, 0,
		`{"time":"2026-11-23T01:02:03.000004Z","yes":true,"small":-5,"big":9007199254740993,"real":0.123456789012345,"text":"☾ of more than twelve bytes","price":1.10,"doc":{"a":[1.50]}}`,
		`{"time":"1969-12-31T23:59:59.999999Z"}`)
	const sql = `SELECT column_name || ' ' || column_type FROM (DESCRIBE events)`
	types, rows := ask(t, s, sql), ask(t, s, `SELECT * FROM events ORDER BY time`)
	if !strings.Contains(rows, `2026-11-23 01:02:03.000004`) || !strings.Contains(rows, "9007199254740993") || !strings.Contains(rows, "0.123456789012345") {
		t.Errorf("rows in the log: %s", rows)
	}
	seal(t, s)
	if got := ask(t, s, sql); got != types {
		t.Errorf("types in files: %s, want %s", got, types)
	}
	if got := ask(t, s, `SELECT * FROM events ORDER BY time`); got != rows {
		t.Errorf("rows in files:\n%s\nwant\n%s", got, rows)
	}
	if days := filesOf(s); len(days) != 2 {
		t.Errorf("%d files for two days", len(days))
	}
}

// TestF23QueriesWriteNothing: each query wrote to the store.
func TestF23QueriesWriteNothing(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"id":2}`)
	waitUntil(t, s, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.garbage) == 0 })
	version, ends, before := s.current().Version, s.log.Ends(), listFolder(t, folder)
	for range 20 {
		ask(t, s, `SELECT count(*), max(id) FROM events`)
	}
	if diff := cmp.Diff(ends, s.log.Ends()); diff != "" || s.current().Version != version {
		t.Errorf("version %d instead of %d, ends of the log (-want +got):\n%s", s.current().Version, version, diff)
	}
	if diff := cmp.Diff(before, listFolder(t, folder)); diff != "" {
		t.Errorf("the folder (-want +got):\n%s", diff)
	}
}

// listFolder lists all files with their size and time, except the log's prepared file.
func listFolder(t *testing.T, folder string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "next" {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprint(path, info.Size(), info.ModTime().UnixNano()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestBackPressure checks that appends wait while sealing fails, report the reason, and
// continue afterwards.
func TestBackPressure(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	block := blockTables(t, folder)
	next, err := uint64(0), error(nil)
	for next < 50 && err == nil {
		if err = p.Append(context.Background(), outputOf(next, `{"id":1}`)); err != nil {
			break
		}
		next++
		failSeal(t, s)
	}
	if next != backlogMax+1 || err == nil || !strings.Contains(err.Error(), "5 closed files of the log could not be written") {
		t.Errorf("after %d appends: %v", next, err)
	}
	os.Remove(block)
	wake(s.sealer)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if err = p.Append(ctx, outputOf(next, `{"id":1}`)); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("with room: %v", err)
	}
	if got := ask(t, s, `SELECT count(*) FROM events`); got != fmt.Sprint(next+1) {
		t.Errorf("%s rows, want %d", got, next+1)
	}
}

// TestQueriesKeepTheirFiles checks that a slow query keeps its files, whatever maintenance
// does.
func TestQueriesKeepTheirFiles(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	next := 0
	for range mergeMin {
		appendDocs(t, p, uint64(next), numbered(next, 3000, day, `,"pad":"`+strings.Repeat("x", 200)+`"`)...)
		next += 3000
		seal(t, s)
	}
	appendDocs(t, p, uint64(next), numbered(next, 3000, day, "")...)
	rows, err := s.Query(context.Background(), `SELECT id, pad FROM events`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var group sync.WaitGroup
	group.Go(func() {
		seal(t, s)
		wake(s.compactor)
		waitUntil(t, s, func() bool { return len(filesOf(s)) <= 2 })
	})
	n := 0
	for rows.Next() {
		if n++; n == 10 {
			group.Wait()
		}
	}
	if rows.Err() != nil || n != next+3000 {
		t.Errorf("%d rows, %v", n, rows.Err())
	}
}

// TestFilesStayForReaders checks that no log file and no Parquet file is removed while a
// reader of an earlier manifest runs.
func TestFilesStayForReaders(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"id":2}`)
	reader := s.snapshot()
	entry := reader.manifest.Table("events")
	paths := []string{entry.Path(folder, entry.Files[0].Name), wal.Path(manifest.LogFolder(folder), reader.ends[len(reader.ends)-1].Number)}
	left := func() (n int) {
		for _, path := range paths {
			if _, err := os.Stat(path); err == nil {
				n++
			}
		}
		return n
	}
	seal(t, s)
	if err := s.replaceFiles(entry.ID, map[string]bool{entry.Files[0].Name: true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.collectGarbage(); err != nil || left() != 2 {
		t.Errorf("while a reader runs %d of %v are left, %v", left(), paths, err)
	}
	reader.release()
	waitUntil(t, s, func() bool { return left() == 0 })
}

// TestDamagedLog damages a frame in the middle of the log. Open reports it; opened read-only,
// the store returns the remaining rows.
func TestDamagedLog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	for i := range uint64(3) {
		appendDocs(t, p, i, fmt.Sprintf(`{"id":%d}`, i))
	}
	s.Close()
	logs, err := filepath.Glob(filepath.Join(manifest.LogFolder(folder), "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("got files of the log %q and error %v, want some", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	text[200] ^= 1 // in the first frame, before acknowledged ones
	if err := os.WriteFile(logs[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(folder, Options{})
	if _, ok := errors.AsType[*wal.DamageError](err); !ok || !event.IsPermanent(err) {
		t.Fatalf("a damaged log: %v", err)
	}
	s, err = Open(folder, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := ask(t, s, `SELECT count(*), min(id) FROM events`); got != "2,1" {
		t.Errorf("what is left: %s", got)
	}
	if _, err := s.Table("more", TableConfig{}); !event.IsPermanent(err) {
		t.Errorf("a new table: %v", err)
	}
}

// TestEarlierStoreIsRefused checks that Open does not change the folder of an earlier
// release.
func TestEarlierStoreIsRefused(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, oldFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, Options{}); !event.IsPermanent(err) || !strings.Contains(event.HintOf(err), "move the folder away") {
		t.Errorf("got %v", err)
	}
}
