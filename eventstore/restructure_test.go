//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
)

// wantHint fails unless err is a permanent error with the given message and hint.
func wantHint(t *testing.T, err error, message, hint string) {
	t.Helper()
	if !event.IsPermanent(err) || !strings.Contains(err.Error(), message) || !strings.Contains(event.HintOf(err), hint) {
		t.Errorf("%v, with the hint %q; want %q with %q", err, event.HintOf(err), message, hint)
	}
}

func dropTable(t testing.TB, s *Store, name string) {
	t.Helper()
	if err := s.DropTable(context.Background(), name); err != nil {
		t.Fatal(err)
	}
}

// TestDropTable drops a table with rows in files and in the log, and creates another of the
// same name. The new table has no rows or positions of the first, also after a restart.
func TestDropTable(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	other, err := s.Table("other", TableConfig{})
	if err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, other), 0, `{"id":7}`)
	config := TableConfig{Time: "time", Columns: declared(event.Int64, "id"), Unique: catalog.Unique{Key: []string{"id"}, Window: catalog.Duration(time.Hour)}}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"time":1,"id":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"time":2,"id":2}`)
	dropTable(t, s, "Events")
	if _, err := s.Query(t.Context(), "FROM events"); err == nil {
		t.Error("query of a dropped table: got no error, want one")
	}
	if err := p.Append(t.Context(), outputOf(2, `{"time":3,"id":3}`)); !errors.Is(err, ErrDropped) {
		t.Errorf("an append to the dropped table: %v", err)
	}
	if err := p.table.SetPosition(t.Context(), "pipe", "part", 9); !errors.Is(err, ErrDropped) {
		t.Errorf("a position for the dropped table: %v", err)
	}
	if err := s.DropTable(t.Context(), "events"); err == nil || !strings.Contains(err.Error(), "there is no table events") {
		t.Errorf("dropped twice: %v", err)
	}
	// A table of the same name with another structure does not inherit the first one's
	// keys.
	config.Time = ""
	table := openTable(t, s, config)
	p, done, err := table.TakeOver(t.Context(), "pipe", "part")
	if err != nil || len(done) > 0 {
		t.Fatalf("the new table has positions: %v, %v", done, err)
	}
	appendDocs(t, p, 0, `{"id":1}`)
	for range 2 {
		if got := ask(t, s, `SELECT id, (SELECT max(id) FROM other) FROM events`); got != "1,7" {
			t.Errorf("rows of the new table: %q", got)
		}
		s.Close()
		s = openStore(t, folder)
	}
	seal(t, s)
	if got := ask(t, s, `FROM events`); got != "1" {
		t.Errorf("after sealing: %q", got)
	}
	dropTable(t, s, "events")
	dropTable(t, s, "other")
	seal(t, s)
	await(t, "the files are gone", func() bool { return len(filesBelow(t, manifest.TablesFolder(folder))) == 0 })
}

// TestDroppedTableInLog opens a store with rows of a dropped table in the log, as after a
// kill between the drop and the sealing of the log.
func TestDroppedTableInLog(t *testing.T) {
	folder, copied := t.TempDir(), filepath.Join(t.TempDir(), "events")
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)
	s.sealing.Lock()
	defer s.sealing.Unlock()
	err := s.change(func(next *manifest.Manifest) error {
		next.Tables = nil
		return nil
	}, nil)
	if err == nil {
		err = os.CopyFS(copied, os.DirFS(folder))
	}
	if err != nil {
		t.Fatal(err)
	}
	again := openStore(t, copied)
	appendDocs(t, take(t, openTable(t, again, TableConfig{})), 0, `{"id":2}`)
	seal(t, again)
	if got := ask(t, again, "FROM events"); got != "2" {
		t.Errorf("rows: %q", got)
	}
}

// TestDropWhileReading checks that a query which began before a drop reads the whole table,
// even while a new table of the same name is created and written.
func TestDropWhileReading(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	docs := make([]string, 20_000)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d,"text":"%s"}`, i, strings.Repeat("x", 100))
	}
	appendDocs(t, p, 0, docs...)
	seal(t, s)
	rows, err := s.Query(t.Context(), "SELECT id FROM events")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	dropTable(t, s, "events")
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":-1}`)
	seal(t, s)
	n := 0
	for rows.Next() {
		if n++; rows.Row()[0].(int64) < 0 {
			t.Fatalf("row %d: got the row %v of the new table, want one of the old", n, rows.Row())
		}
	}
	if rows.Err() != nil || n != len(docs) {
		t.Errorf("%d of %d rows, %v", n, len(docs), rows.Err())
	}
	if got := ask(t, s, "SELECT id FROM events"); got != "-1" {
		t.Errorf("the new table has %q", got)
	}
}

// TestRenameTable renames a table with rows, keys and positions. The old name is rejected
// until it is released; then it starts without positions.
func TestRenameTable(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	config := TableConfig{Columns: declared(event.Int64, "id"), Unique: catalog.Unique{Key: []string{"id"}, Window: catalog.Duration(time.Hour)}}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"id":2}`)
	if err := s.RenameTable(t.Context(), "events", "archive", false); err != nil {
		t.Fatal(err)
	}
	if err := p.Append(t.Context(), outputOf(2, `{"id":3}`)); !errors.Is(err, ErrFenced) {
		t.Errorf("an append under the old name: %v", err)
	}
	for range 2 {
		_, err := s.Table("Events", config)
		wantHint(t, err, "table Events is called archive now", "perigee table rename Events archive --release")
		if got := ask(t, s, `SELECT id FROM archive ORDER BY id`); got != "1\n2" {
			t.Errorf("rows of the renamed table: %q", got)
		}
		s.Close()
		s = openStore(t, folder)
	}
	archive, err := s.Table("archive", config)
	if err != nil {
		t.Fatal(err)
	}
	p, done, err := archive.TakeOver(t.Context(), "pipe", "part")
	if err != nil || !done.Covers(0, 2) {
		t.Fatalf("positions of the renamed table: %v, %v", done, err)
	}
	appendDocs(t, p, 2, `{"id":2}`, `{"id":3}`) // one repeats a key
	if _, err := s.UseTable("third"); err != nil {
		t.Fatal(err)
	}
	wantHint(t, s.RenameTable(t.Context(), "third", "events", false), "table events is called archive now", "--release")
	wantHint(t, s.RenameTable(t.Context(), "third", "Archive", false), "table archive already exists", "perigee table drop archive")
	wantHint(t, s.RenameTable(t.Context(), "third", "a b", false), "invalid table name", "letters")
	if err := s.RenameTable(t.Context(), "nowhere", "somewhere", true); err == nil {
		t.Error("an unknown table was renamed")
	}
	if err := s.RenameTable(t.Context(), "events", "archive", true); err != nil {
		t.Fatal(err)
	}
	p, done, err = openTable(t, s, config).TakeOver(t.Context(), "pipe", "part")
	if err != nil || len(done) > 0 {
		t.Fatalf("positions of the new table: %v, %v", done, err)
	}
	appendDocs(t, p, 0, `{"id":10}`)
	seal(t, s)
	if got := ask(t, s, `SELECT (SELECT string_agg(id, ',' ORDER BY id) FROM archive) || '; ' || (SELECT string_agg(id, ',') FROM events)`); got != `"1,2,3; 10"` {
		t.Errorf("rows of both: %q", got)
	}
	// Both tables have files, in separate folders, and each takes the other's name.
	for _, names := range [][2]string{{"events", "fresh"}, {"archive", "ARCHIVE"}, {"ARCHIVE", "events"}} {
		if err := s.RenameTable(t.Context(), names[0], names[1], true); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = openStore(t, folder)
	if got := ask(t, s, `SELECT (SELECT count(*) FROM events) || ' ' || (SELECT count(*) FROM fresh)`); got != "3 1" {
		t.Errorf("rows after a restart: %q", got)
	}
	dropTable(t, s, "events")
	if got := ask(t, s, `SELECT id FROM fresh`); got != "10" {
		t.Errorf("the other table has %q", got)
	}
}

// TestSetTime sets a time column, of text, of numbers and of both, on a table created without
// one, with rows in files and in the log. The table then matches a declaration.
func TestSetTime(t *testing.T) {
	const day = 24 * 60 * 60
	for _, test := range []struct {
		name string
		time func(i int) string // time of row i, in second i*day/2
		c    TimeColumn
	}{
		{"text", func(i int) string { return time.Unix(int64(i)*day/2, 0).UTC().Format(`"2006-01-02T15:04:05Z"`) }, TimeColumn{Name: "SEEN"}},
		{"zone", func(i int) string {
			return time.Unix(int64(i)*day/2, 0).In(time.FixedZone("", 2*60*60)).Format(`"2006-01-02T15:04:05.000-07:00"`)
		}, TimeColumn{Name: "seen", Unit: event.TextOnly}},
		{"zone with nanoseconds", func(i int) string {
			return time.Unix(int64(i)*day/2, 0).In(time.FixedZone("", -5*60*60)).Format(`"2006-01-02T15:04:05.000000000-07:00"`)
		}, TimeColumn{Name: "seen", Unit: event.Nanoseconds}},
		{"seconds", func(i int) string { return fmt.Sprint(i * day / 2) }, TimeColumn{Name: "seen"}},
		{"fractions", func(i int) string { return fmt.Sprintf("%d.0", i*day/2) }, TimeColumn{Name: "seen"}},
		{"milliseconds", func(i int) string { return fmt.Sprint(i * day / 2 * 1000) }, TimeColumn{Name: "seen", Unit: event.Milliseconds}},
		{"nanoseconds", func(i int) string { return fmt.Sprint(i * day / 2 * 1e9) }, TimeColumn{Name: "seen", Unit: event.Nanoseconds}},
		{"nanoseconds as microseconds", func(i int) string { return fmt.Sprint(i * day / 2 * 1e9) }, TimeColumn{Name: "seen", Unit: event.Nanoseconds, Type: event.Timestamp}},
		{"both", func(i int) string {
			if i%2 == 0 {
				return time.Unix(int64(i)*day/2, 0).UTC().Format(`"2006-01-02T15:04:05Z"`)
			}
			return fmt.Sprint(i * day / 2)
		}, TimeColumn{Name: "seen"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			s := openStore(t, folder)
			p := take(t, openTable(t, s, TableConfig{}))
			doc := func(i int) string { return fmt.Sprintf(`{"id":%d,"seen":%s}`, i, test.time(i)) }
			appendDocs(t, p, 0, doc(0), doc(1), doc(2), doc(3))
			seal(t, s)
			appendDocs(t, p, 4, doc(4), doc(5), doc(6))
			wanted := TableConfig{Time: "seen", TimeUnit: test.c.Unit, Columns: []event.Column{{Name: "seen", Path: []string{"seen"}, Type: test.c.kind(), Unit: test.c.Unit}}}
			_, err := s.Table("events", wanted)
			wantHint(t, err, `the time column is "seen", but the table has ""`, "perigee table set-time events seen")
			if err := s.SetTime(t.Context(), "events", test.c); err != nil {
				t.Fatal(err)
			}
			check := func(when string, n int) {
				t.Helper()
				const sql = `SELECT count(*), count(*) FILTER (epoch(seen) = id * 43200), (SELECT count(*) FROM events WHERE seen >= TIMESTAMP '1970-01-02' AND seen < '1970-01-03'), (SELECT id FROM events ORDER BY seen DESC LIMIT 1) FROM events`
				if got, want := ask(t, s, sql), fmt.Sprintf("%d,%d,2,%d", n, n, n-1); got != want {
					t.Errorf("%s: %s, want %s", when, got, want)
				}
			}
			check("at once", 7)
			p = take(t, openTable(t, s, wanted))
			appendDocs(t, p, 7, doc(7))
			if rejected := p.Append(t.Context(), outputOf(8, `{"id":8}`)); !strings.Contains(fmt.Sprint(rejected), "seen is missing") {
				t.Errorf("an event without its time: %v", rejected)
			}
			check("with a row in the log", 8)
			if err := s.WaitDivided(t.Context(), "events"); err != nil {
				t.Fatal(err)
			}
			check("divided", 8)
			s.Close()
			s = openStore(t, folder)
			openTable(t, s, wanted)
			seal(t, s)
			check("opened again", 8)
			for _, f := range filesOf(s) {
				if f.Day != time.UnixMicro(f.MinTime).UTC().Format(time.DateOnly) || f.Day != time.UnixMicro(f.MaxTime).UTC().Format(time.DateOnly) {
					t.Errorf("file %s of day %q has times from %v to %v", f.Name, f.Day, time.UnixMicro(f.MinTime).UTC(), time.UnixMicro(f.MaxTime).UTC())
				}
			}
		})
	}
}

// TestDivisionGoesOn reopens a store with undivided files. The store resumes the division,
// and its rows are correct before and after.
func TestDivisionGoesOn(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	const files = 4
	for i := range uint64(files) {
		appendDocs(t, p, 2*i, fmt.Sprintf(`{"id":%d,"time":"2026-01-01T00:00:00Z"}`, i), fmt.Sprintf(`{"id":%d,"time":"2026-01-02T00:00:00Z"}`, files+i))
		seal(t, s)
	}
	s.compacting.Lock() // as if the process were killed before the first file is divided
	held := true
	defer func() {
		if held {
			s.compacting.Unlock()
		}
	}()
	s.sealing.Lock()
	err := s.tableNamed("events").setTime(t.Context(), TimeColumn{Name: "time"}, map[string]sqlclient.FileTimes{})
	s.sealing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	const sql = `SELECT count(*), (SELECT count(*) FROM events WHERE time >= TIMESTAMP '2026-01-02') FROM events`
	for _, f := range filesOf(s) {
		if !f.Undivided {
			t.Errorf("file %s is divided already", f.Name)
		}
	}
	if got := ask(t, s, sql); got != "8,4" {
		t.Errorf("before: %s", got)
	}
	copied := t.TempDir()
	if err := os.CopyFS(filepath.Join(copied, "events"), os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	s.compacting.Unlock()
	held = false
	again := openStore(t, filepath.Join(copied, "events"))
	if err := again.WaitDivided(t.Context(), "events"); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, again, sql); got != "8,4" {
		t.Errorf("after: %s", got)
	}
	for _, f := range filesOf(again) {
		if f.Day == "" || f.Undivided {
			t.Errorf("file %s is not divided", f.Name)
		}
	}
}

// TestSetTimeRefuses checks that errors name rows without a time, and other uses of the
// column. A rejected change leaves the table unchanged, and the command in the hint helps.
func TestSetTimeRefuses(t *testing.T) {
	s := openStore(t, t.TempDir())
	config := TableConfig{Columns: declared(event.String, "key"), Unique: catalog.Unique{Key: []string{"key"}, Window: catalog.Duration(time.Hour)}}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":1,"seen":"2026-01-01T00:00:00Z","ok":true,"key":"2026-01-01T00:00:00Z"}`, `{"id":2,"seen":"yesterday"}`)
	seal(t, s)
	appendDocs(t, p, 2, `{"id":3}`)
	wantHint(t, s.SetTime(t.Context(), "events", TimeColumn{Name: "when"}), "the table has no column when", "columns: key, id, seen, ok")
	wantHint(t, s.SetTime(t.Context(), "events", TimeColumn{Name: "ok"}), "column ok is of type bool", "RFC 3339")
	wantHint(t, s.SetTime(t.Context(), "events", TimeColumn{Name: "key"}), "column key is part of the key of unique", "remove it from the key")
	wantHint(t, s.SetTime(t.Context(), "nowhere", TimeColumn{Name: "seen"}), "there is no table nowhere", "")
	err := s.SetTime(t.Context(), "events", TimeColumn{Name: "seen"})
	wantHint(t, err, "rows without a time in column seen: 2", `perigee table delete events "WHERE try_cast("seen" AS TIMESTAMP) IS NULL"`)
	if got := describedTables(s)[0].Time; got != "" {
		t.Errorf("the time column is %q after an error", got)
	}
	if _, err := s.Delete(t.Context(), "events", `try_cast("seen" AS TIMESTAMP) IS NULL`); err != nil {
		t.Fatal(err)
	}
	if err := s.SetTime(t.Context(), "events", TimeColumn{Name: "seen"}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "SELECT id, seen FROM events"); got != "1,2026-01-01 00:00:00" {
		t.Errorf("rows: %q", got)
	}
	// Without a time column again, the column remains and nothing needs it.
	if err := s.SetTime(t.Context(), "events", TimeColumn{}); err != nil {
		t.Fatal(err)
	}
	appendDocs(t, take(t, openTable(t, s, config)), 3, `{"id":4,"key":"b"}`)
	if got := ask(t, s, "SELECT id, seen FROM events ORDER BY id"); got != "1,2026-01-01 00:00:00\n4," {
		t.Errorf("rows: %q", got)
	}
}

// TestDropColumn drops a column with an inferred type that differs from the declared one,
// before and after rows of the new column, in files and in the log, across merges.
func TestDropColumn(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"id":1,"price":1.5}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"id":2,"price":2.5}`)
	wanted := TableConfig{Columns: []event.Column{{Name: "price", Path: []string{"price"}, Type: event.Decimal, Digits: event.Digits{Precision: 18, Scale: 2}}}}
	_, err := s.Table("events", wanted)
	wantHint(t, err, "column price is declared as decimal(18,2) of field price, but the table has it as float64", "perigee table drop-column events price")
	if err := s.DropColumn(t.Context(), "events", "Price"); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "SELECT * FROM events ORDER BY id"); got != "1\n2" {
		t.Errorf("without the column: %q", got)
	}
	p = take(t, openTable(t, s, wanted))
	appendDocs(t, p, 2, `{"id":3,"price":3.25}`)
	want := "1,\n2,\n3,3.25"
	for range 5 { // files of each version, which are merged
		if got := ask(t, s, "SELECT id, price FROM events ORDER BY id"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		seal(t, s)
		id := strings.Count(want, "\n") + 2
		appendDocs(t, p, uint64(id-1), fmt.Sprintf(`{"id":%d,"price":%d}`, id, id))
		want += fmt.Sprintf("\n%d,%d.00", id, id)
	}
	s.Close()
	s = openStore(t, folder)
	if got := ask(t, s, "SELECT id, price FROM events ORDER BY id"); got != want {
		t.Errorf("opened again: %q", got)
	}
}

// TestDroppedColumnsOfFiles reads files together, some with and some without a dropped
// column.
func TestDroppedColumnsOfFiles(t *testing.T) {
	for _, first := range []int{0, 1} {
		s := openStore(t, t.TempDir())
		p := take(t, openTable(t, s, TableConfig{}))
		docs := []string{`{"id":1,"x":1.5}`, `{"id":2}`}
		appendDocs(t, p, 0, docs[first])
		seal(t, s)
		appendDocs(t, p, 1, docs[1-first])
		seal(t, s)
		if err := s.DropColumn(t.Context(), "events", "x"); err != nil {
			t.Fatal(err)
		}
		appendDocs(t, p, 2, `{"id":3}`)
		seal(t, s)
		if got := ask(t, s, "SELECT * FROM events ORDER BY id"); got != "1\n2\n3" {
			t.Errorf("got %q", got)
		}
	}
}

// TestDropColumnRefuses checks that columns which settings need cannot be dropped.
func TestDropColumnRefuses(t *testing.T) {
	s := openStore(t, t.TempDir())
	config := TableConfig{
		Time: "time", Event: "name", Sort: []string{"a"}, Bloom: []string{"b"}, Columns: declared(event.Int64, "id", "a", "b", "c"),
		Unique: catalog.Unique{Key: []string{"id"}, Window: catalog.Duration(time.Hour)},
	}
	p := take(t, openTable(t, s, config))
	appendDocs(t, p, 0, `{"id":1,"time":1,"name":"n","a":1,"b":1,"c":1,"d":1}`)
	s.SetComputed([]ComputedColumn{times("c", "1", 1)})
	for column, message := range map[string]string{
		"TIME": "column time is the time column", "name": "is the event column", "a": "is one of those that files are sorted by", "b": "with bloom filters",
		"id": "part of the key of unique", "c": "is computed by the configuration", "_rest": "no column _rest", "e": "no column e",
	} {
		if err := s.DropColumn(t.Context(), "events", column); !event.IsPermanent(err) || !strings.Contains(err.Error(), message) || event.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", column, err, event.HintOf(err))
		}
	}
	// Dropping a column also drops its idle recompute.
	startRecompute(t, s, "c")
	s.SetComputed(nil)
	for _, column := range []string{"c", "d"} {
		if err := s.DropColumn(t.Context(), "events", column); err != nil {
			t.Error(err)
		}
	}
	if got := ask(t, s, "SELECT * EXCLUDE (time) FROM events"); got != "1,1,1,n" {
		t.Errorf("rows: %q", got)
	}
}

// TestRestructureUnderLoad changes tables while rows are appended, sealed, merged and
// deleted. In the end each row exists once.
func TestRestructureUnderLoad(t *testing.T) {
	s, err := Open(t.TempDir(), Options{SegmentBytes: 32 << 10, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := openTable(t, s, TableConfig{})
	const lanes, size = 3, 20
	var work sync.WaitGroup
	var appended atomic.Int64
	beside := make(pace, 100)
	for lane := range lanes {
		p, _, err := table.TakeOver(t.Context(), "pipe", fmt.Sprint(lane))
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			for batch := range beside.batches() {
				docs := make([]string, size)
				for i := range docs {
					id := (batch*size+i)*lanes + lane
					docs[i] = fmt.Sprintf(`{"id":%d,"time":"2026-01-0%dT00:00:00Z","x":%d.5,"text":"%s"}`, id, 1+id%3, id, strings.Repeat("x", 100))
				}
				if err := p.Append(context.Background(), outputOf(uint64(batch*size), docs...)); err != nil {
					t.Error(err)
					return
				}
				appended.Add(1)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for at, step := range []func() error{ // x exists again after some rows
		func() error { return s.SetTime(ctx, "events", TimeColumn{Name: "time"}) },
		func() error { return s.DropColumn(ctx, "events", "x") },
		func() error { return s.SetTime(ctx, "events", TimeColumn{}) },
		func() error { _, err := s.Delete(ctx, "events", "id < 0"); return err },
		func() error { return s.SetTime(ctx, "events", TimeColumn{Name: "time", Unit: event.TextOnly}) },
		func() error { return s.DropColumn(ctx, "events", "x") },
	} {
		beside.renew()
		before := appended.Load()
		await(t, "rows are appended", func() bool { return appended.Load() >= before+20 })
		if err := step(); err != nil {
			t.Errorf("step %d: %v", at, err)
		}
	}
	close(beside)
	work.Wait()
	seal(t, s)
	if err := s.WaitDivided(ctx, "events"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d,%[1]d,%[1]d", appended.Load()*size)
	if got := ask(t, s, `SELECT count(*), count(DISTINCT id), count(*) FILTER (day(time) = 1 + id % 3) FROM events`); got != want {
		t.Errorf("%s rows, ids and times, want %s", got, want)
	}
	if slices.ContainsFunc(filesOf(s), func(f *manifest.File) bool { return f.Day == "" }) {
		t.Error("a file is not divided")
	}
}

// TestCatalog compares the results of Check with the behavior of the store.
func TestCatalog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1,"time":"2026-01-01T00:00:00Z","price":1.5}`)
	if _, err := s.UseTable("old"); err != nil {
		t.Fatal(err)
	}
	if err := s.RenameTable(t.Context(), "old", "new", false); err != nil {
		t.Fatal(err)
	}
	known, err := ReadCatalog(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		want *TableConfig
	}{
		{"events", nil}, {"Events", nil}, {"old", nil}, {"untold", nil}, {"1st", nil},
		{"events", &TableConfig{}}, {"events", &TableConfig{Time: "time"}}, {"old", &TableConfig{}},
		{"events", &TableConfig{Columns: declared(event.Float64, "price")}},
		{"events", &TableConfig{Columns: declared(event.Decimal, "price")}},
		{"events", &TableConfig{Unique: catalog.Unique{Key: []string{"key"}, Window: catalog.Duration(time.Hour)}}},
		{"fresh", &TableConfig{Time: "time"}}, {"fresh2", &TableConfig{Unique: catalog.Unique{Key: []string{"id"}}}},
	} {
		said := known.Check(test.name, test.want)
		_, done := s.openTable(test.name, test.want)
		if fmt.Sprint(said) != strings.ReplaceAll(fmt.Sprint(done), "table "+test.name+": eventstore: table", "eventstore: table") && fmt.Sprint(said) != fmt.Sprint(done) || event.HintOf(said) != event.HintOf(done) {
			t.Errorf("%s %+v: check says %v, and the store %v", test.name, test.want, said, done)
		}
	}
	if empty, err := ReadCatalog(t.TempDir()); err != nil || empty.Check("old", nil) != nil {
		t.Errorf("a folder without a store: %v; it has table old", err)
	}
}
