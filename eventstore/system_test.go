//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/systemtable"
)

func TestSystemTable(t *testing.T) {
	type letter struct {
		ID   string    `json:"id" sql:"VARCHAR"`
		At   uint64    `json:"position" sql:"UBIGINT"`
		Time time.Time `json:"time" sql:"TIMESTAMP"`
		Text string    `json:"text,omitempty" sql:"VARCHAR"`
	}
	asked := 0
	failing := errors.New("no such luck")
	columns := systemtable.Columns(letter{})
	letters := func() iter.Seq2[any, error] {
		asked++
		return func(yield func(any, error) bool) {
			for i := range uint64(5000) {
				l := letter{ID: "it's", At: 1<<64 - 1 - i, Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Text: strings.Repeat("x", int(i%700))}
				if !yield(l, nil) {
					return
				}
			}
		}
	}
	s, err := Open(t.TempDir(), Options{System: []systemtable.Table{
		{Name: "Letters", Columns: columns, Rows: letters},
		{Name: "events", Columns: columns, Rows: letters},
		{Name: "broken", Columns: columns, Rows: func() iter.Seq2[any, error] {
			return func(yield func(any, error) bool) { yield(nil, failing) }
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)

	for sql, want := range map[string]string{
		`SELECT count(*), max(position), count(DISTINCT id), max(length(text)), count(*) - count(text), max(time) FROM LETTERS`: "5000,18446744073709551615,1,699,8,2026-01-02 03:04:05.000006",
		`SELECT count(*) FROM letters JOIN events ON events.id = 1`:                                                             "5000",
		`SELECT count(*) FROM events`:                                 "1", // the store's own table
		`SELECT count(*) FROM perigee.Events`:                         "5000",
		`SELECT count(*) FROM events.perigee.events`:                  "5000",
		`SELECT count(*) FROM events e JOIN perigee.events p ON true`: "5000",
		`DESCRIBE letters`:                                            "id,VARCHAR,YES",
		`DESCRIBE perigee.letters`:                                    "id,VARCHAR,YES",
		`SHOW TABLES`:                                                 "events",
	} {
		if got := ask(t, s, sql); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	before := asked
	if ask(t, s, `SELECT 1`); asked != before {
		t.Errorf("a query that does not name the table: got %d reads of it, want %d as before", asked, before)
	}
	if _, err := s.Query(context.Background(), `FROM broken`); !errors.Is(err, failing) {
		t.Errorf("a table whose rows cannot be read: %v", err)
	}
	for _, sql := range []string{`DROP TABLE letters`, `DROP TABLE perigee.letters`, `CREATE TABLE perigee.x AS SELECT 1`, `FROM perigee.nothing`, `FROM perigee.main.letters`, `DELETE FROM letters`, `INSERT INTO letters BY NAME SELECT 'x' AS id`, `EXPLAIN ANALYZE DELETE FROM letters`} {
		if rows, err := s.Query(context.Background(), sql); err == nil {
			rows.Close()
			t.Errorf("%s was answered", sql)
		}
	}
}

// TestSegments reads the table segments before and after rows are sealed.
func TestSegments(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Event: "event"}))
	appendDocs(t, p, 0, `{"time":"2026-01-02T03:04:05Z","event":"a"}`, `{"time":"2026-01-03T03:04:05.5Z","event":"b"}`)
	appendDocs(t, p, 2, `{"time":"2026-01-01T00:00:00Z","event":"b"}`)
	other, err := s.UseTable("other")
	if err != nil {
		t.Fatal(err)
	}
	const sql = `SELECT table_name, kind, segment IS NULL, day, rows, bytes > 0, oldest, newest, schema_version, bloom FROM segments ORDER BY ALL`
	if got, want := ask(t, s, sql), "events,log,true,,3,true,2026-01-01 00:00:00,2026-01-03 03:04:05.5,,false"; got != want {
		t.Errorf("hot rows:\n%s\nwant\n%s", got, want)
	}
	seal(t, s)
	appendDocs(t, take(t, other), 0, `{"n":1}`)
	want := `events,parquet,false,2026-01-01,1,true,2026-01-01 00:00:00,2026-01-01 00:00:00,2,true
events,parquet,false,2026-01-02,1,true,2026-01-02 03:04:05,2026-01-02 03:04:05,2,true
events,parquet,false,2026-01-03,1,true,2026-01-03 03:04:05.5,2026-01-03 03:04:05.5,2,true
other,log,true,,1,true,,,,false`
	if got := ask(t, s, sql); got != want {
		t.Errorf("closed rows:\n%s\nwant\n%s", got, want)
	}
	for name := range strings.SplitSeq(ask(t, s, `SELECT file FROM segments`), "\n") {
		if _, err := os.Stat(filepath.Join(s.folder, name)); err != nil {
			t.Errorf("there is no file %q", name)
		}
	}
}

// TestTableNamedAsSystemTable creates tables with the names of system tables. A query that
// names both reads both correctly, and conditions on one do not narrow the other.
func TestTableNamedAsSystemTable(t *testing.T) {
	var log bytes.Buffer
	s, err := Open(t.TempDir(), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table, err := s.Table("Segments", TableConfig{Time: "newest"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "perigee.segments") {
		t.Errorf("the log says nothing of the hidden system table: %s", log.String())
	}
	p := take(t, table)
	appendDocs(t, p, 0, `{"newest":"2026-01-02T00:00:00Z","n":1}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"newest":"2026-01-04T00:00:00Z","n":2}`)
	for sql, want := range map[string]string{
		`SELECT n FROM segments ORDER BY n`:                                                                                   "1\n2",
		`SELECT count(*) FROM perigee.segments`:                                                                               "2",
		`SELECT kind FROM perigee.segments ORDER BY newest DESC LIMIT 1`:                                                      "log",
		`SELECT n, kind FROM segments s, perigee.segments p WHERE p.newest > TIMESTAMP '2026-01-03 00:00' ORDER BY n`:         "1,log\n2,log",
		`SELECT n, kind FROM segments s, perigee.segments segments WHERE segments.newest > TIMESTAMP '2026-01-03' ORDER BY n`: "1,log\n2,log",
	} {
		if got := ask(t, s, sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

func TestWorkers(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Memory: 300 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := take(t, openTable(t, s, TableConfig{}))
	if got, want := ask(t, s, `SELECT role, state, requests, requests_total, memory BETWEEN 1 AND memory_limit, memory_limit >> 20, started <= now()::TIMESTAMP FROM workers`), "query,running,1,1,true,300,true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	appendDocs(t, p, 0, `{"n":1}`)
	seal(t, s)
	if got, want := ask(t, s, `SELECT role, count(DISTINCT pid) > 0, sum(requests_total) > 0 FROM perigee.workers GROUP BY ALL ORDER BY ALL`), "query,true,true\nseal,true,true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSystemRowsStop takes only one row of a system table, as LIMIT does.
func TestSystemRowsStop(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"a":1}`)
	ask(t, s, "SELECT 1")
	rows := 0
	for _, state := range []string{"log", "parquet"} {
		for _, table := range s.ownTables() {
			for row, err := range table.Rows() {
				if err != nil {
					t.Fatal(err)
				}
				if segment, ok := row.(*systemtable.Segment); ok && segment.Kind != state {
					t.Errorf("a row of %s, want one of %s", segment.Kind, state)
				}
				rows++
				break
			}
		}
		seal(t, s)
		appendDocs(t, p, 1, `{"a":1}`)
	}
	if rows < 4 { // segments twice, workers
		t.Errorf("%d rows", rows)
	}
}

// TestTablesAreSorted checks the order of listed tables and files, and that counts of log and
// files are added up per table.
func TestTablesAreSorted(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	day := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	tables := map[string]*Partition{}
	for _, name := range []string{"b", "c", "a"} {
		table, err := s.Table(name, TableConfig{Time: "time"})
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := table.TakeOver(t.Context(), "pipe", name)
		if err != nil {
			t.Fatal(err)
		}
		tables[name] = p
	}
	appendDocs(t, tables["b"], 0, numbered(0, 3, day.Add(72*time.Hour), "")...)
	seal(t, s)
	appendDocs(t, tables["b"], 3, numbered(3, 2, day, "")...)
	appendDocs(t, tables["c"], 0, numbered(0, 7, day, "")...)
	seal(t, s)
	appendDocs(t, tables["b"], 5, numbered(5, 4, day.Add(24*time.Hour), "")...)
	appendDocs(t, tables["a"], 0, numbered(0, 1, day, "")...)
	appendDocs(t, tables["b"], 9, numbered(9, 5, day.Add(-24*time.Hour), "")...)
	stats, err := s.Tables()
	if err != nil || len(stats) != 3 {
		t.Fatalf("got tables %+v and error %v, want 3 tables", stats, err)
	}
	for i, want := range []struct {
		name           string
		logRows, files int64
		from, to       int
	}{{"a", 1, 0, 0, 0}, {"b", 9, 5, -1, 3}, {"c", 0, 7, 0, 0}} {
		got, rows := stats[i], int64(0)
		for n, f := range got.Files {
			rows += f.Rows
			if n > 0 && f.Oldest.Before(got.Files[n-1].Oldest) {
				t.Errorf("file %s is after a younger one", f.Name)
			}
		}
		if got.Name != want.name || got.LogRows != want.logRows || rows != want.files || got.Rows != want.files+want.logRows ||
			!got.Oldest.Truncate(24*time.Hour).Equal(day.AddDate(0, 0, want.from)) || !got.Newest.Truncate(24*time.Hour).Equal(day.AddDate(0, 0, want.to)) {
			t.Errorf("%d rows in files, and %+v", rows, got)
		}
	}
	if got := ask(t, s, "SELECT string_agg(table_name || kind || rows, ' ' ORDER BY table_name, kind, oldest) FROM perigee.segments"); got != "alog1 blog9 bparquet2 bparquet3 cparquet7" {
		t.Errorf("segments %s", got)
	}
	s.Close()
	if _, err := s.Tables(); !errors.Is(err, ErrClosed) {
		t.Errorf("of a closed store: %v", err)
	}
}
