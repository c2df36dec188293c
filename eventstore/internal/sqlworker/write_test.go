//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// seal moves the rows of a log file into files of the manifest.
func (f *folder) seal(number uint64) {
	f.t.Helper()
	for _, end := range f.ends {
		if end.Number != number {
			continue
		}
		written, err := f.client.WriteSegment(f.t.Context(), protocol.Segment{Version: f.m.Version, Log: end, Number: f.m.NextSegment})
		if err != nil {
			f.t.Fatal(err)
		}
		f.m.NextSegment++
		f.m.LogStart = number + 1
		for _, w := range written {
			table := f.m.TableByID(w.Table)
			table.Files = append(table.Files, &w.File)
		}
	}
	f.save()
}

func TestSegment(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "amount", event.Float64), column(6, "data", event.JSON), column(7, "flag", event.Bool))
	other := f.addTable("other")
	const perDay = 86400
	f.appendFrame(1, frameOf(table, 2000, testRow(perDay-1000)))
	f.appendFrame(1, frameOf(other, 10, testRow(0)))
	f.appendFrame(1, frameOf(table, 100, testRow(0)))
	f.appendFrame(2, frameOf(table, 10, testRow(2*perDay)))
	const all = `SELECT count(*), sum(id), sum(amount), count(flag), max(data->>'id'), min(time), max(event) FROM events`
	before := f.ask(all)
	f.seal(1)
	f.want(all, before)
	f.want(`SELECT count(*) FROM other`, "10")
	if n := len(table.Files); n != 2 {
		t.Fatalf("%d files", n)
	}
	for i, want := range []manifest.File{
		{Name: "2026-11-22/0000000001-0.parquet", Bloom: "2026-11-22/0000000001-0.bloom", Segment: 1, Schema: 1, Format: manifest.FileFormat, Day: "2026-11-22", Rows: 1100, Log: 1, MinTime: testDay.UnixMicro(), MaxTime: testDay.UnixMicro() + (perDay-1)*1e6},
		{Name: "2026-11-23/0000000001-1.parquet", Bloom: "2026-11-23/0000000001-1.bloom", Segment: 1, Schema: 1, Format: manifest.FileFormat, Day: "2026-11-23", Rows: 1000, Log: 1, MinTime: testDay.UnixMicro() + perDay*1e6, MaxTime: testDay.UnixMicro() + (perDay+999)*1e6},
	} {
		got := *table.Files[i]
		info, err := os.Stat(table.Path(f.path, got.Name))
		if err != nil || info.Size() != got.Bytes {
			t.Errorf("%s has %d bytes on disk: %v", got.Name, info.Size(), err)
		}
		if got.GroupBytes <= 0 {
			t.Errorf("%s: %d bytes in a row group", got.Name, got.GroupBytes)
		}
		if got.Bytes, got.GroupBytes, got.GroupRows = 0, 0, 0; got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.path, "temp", "seal-*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	f.seal(2)
	f.want(all, before[:0]+f.ask(all))
	f.appendFrame(3, frameOf(table, 500, testRow(0)))
	f.appendFrame(3, frameOf(table, 10, testRow(2*perDay)))
	f.seal(3)
	after := f.ask(all)
	merged := f.merge(table, []string{table.Files[0].Name, table.Files[3].Name}, []string{table.Files[2].Name, table.Files[4].Name})
	f.want(all, after)
	if len(merged) != 2 || merged[0].File.Log != 3 || merged[0].File.Rows != 1600 || merged[1].File.Rows != 20 || len(table.Files) != 3 {
		t.Errorf("merged into %+v", merged)
	}
}

// merge merges groups of files of a table and saves the manifest.
func (f *folder) merge(table *manifest.Table, groups ...[]string) []protocol.Merged {
	f.t.Helper()
	merged, err := f.client.Merge(f.t.Context(), protocol.Merge{Version: f.m.Version, Table: table.ID, Groups: groups, Number: f.m.NextSegment})
	if err != nil {
		f.t.Fatal(err)
	}
	f.m.NextSegment++
	for i, m := range merged {
		if m.Unchanged {
			continue
		}
		table.Files = slices.DeleteFunc(table.Files, func(file *manifest.File) bool { return slices.Contains(groups[i], file.Name) })
		if m.File != nil {
			table.Files = append(table.Files, m.File)
		}
	}
	f.save()
	return merged
}

// TestFileLayout checks that files are sorted by event and time, have stable column ids, and
// store integers as deltas, which are smaller and faster to read.
func TestFileLayout(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	f.appendFrame(1, frameOf(table, 5000, testRow(0)))
	f.seal(1)
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	path := sqltext.Literal(table.Path(f.path, table.Files[0].Name))
	for sql, want := range map[string]string{
		`SELECT string_agg(field_id || name, ' ') FROM parquet_schema(` + path + `) WHERE field_id IS NOT NULL`:                                        "2id 3time 4event",
		`SELECT bool_and(compression = 'ZSTD') FROM parquet_metadata(` + path + `)`:                                                                    "true",
		`SELECT string_agg(DISTINCT encodings) FROM parquet_metadata(` + path + `) WHERE path_in_schema = 'id'`:                                        "DELTA_BINARY_PACKED",
		`SELECT count(*) FROM (SELECT event, time, lag((event, time)) OVER () AS before FROM read_parquet(` + path + `)) WHERE before > (event, time)`: "0",
	} {
		rows, err := c.Run(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got := protocol.Text(rows[0][0]); got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
	}
}

// TestRowGroupsOfWideRows writes rows slightly narrower and wider than 4 KiB. The wider ones
// must get smaller row groups.
func TestRowGroupsOfWideRows(t *testing.T) {
	for _, test := range []struct{ width, groupBytes int }{
		{4<<10 - 100, rowGroupBytes},
		{4<<10 + 100, wideGroupBytes},
	} {
		f := newFolder(t, Options{})
		table := f.addTable("events", column(5, "text", event.String))
		text := strings.Repeat("x", test.width)
		f.appendFrame(1, frameOf(table, 4000, func(c manifest.Column, v *event.Vector, row int) {
			if c.Name == "text" {
				addText(v, text)
				return
			}
			testRow(0)(c, v, row)
		}))
		f.seal(1)
		got, want := table.Files[0].GroupRows, int64(test.groupBytes/test.width)
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("rows of %d bytes: %d in a row group, want about %d", test.width, got, want)
		}
	}
}

// mergeSession starts a merge session in this process. Close it after use.
func (f *folder) mergeSession() *session {
	f.t.Helper()
	own := protocol.Settings{Folder: f.path, Role: protocol.MergeRole, Memory: writerMemory, Threads: 1, RowGroup: rowGroupRows}
	w := &worker{settings: own, databases: databases{settings: own}}
	s, err := w.newWriteSession(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	s.failed = true // close the database with the session
	return s
}

// TestMergedChunksOfLongTexts merges rows with alternating long texts and nulls. A chunk is
// entirely in memory, so its texts must limit its length.
func TestMergedChunksOfLongTexts(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "text", event.String))
	const rows, width, most = 60, 100 << 10, 1 << 20
	for number := range uint64(2) {
		f.appendFrame(number+1, frameOf(table, rows, func(c manifest.Column, v *event.Vector, row int) {
			switch {
			case c.Name == "event":
				addText(v, "event")
			case c.Name == "text" && row%2 == 0:
				addText(v, strings.Repeat("x", width))
			case c.Name == "text":
				v.Null[row] = 1
				addText(v, "")
			default:
				testRow(int(number))(c, v, 2*row)
			}
		}))
		f.seal(number + 1)
	}
	s := f.mergeSession()
	defer s.close()
	merge, err := s.openMerge(table, table.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer merge.close()
	all := 0
	err = s.conn.Stream("SELECT text "+merge.sql(), func(batch arrow.RecordBatch) error {
		texts := (int(batch.NumRows()) - batch.Column(0).NullN()) * width
		if texts >= most+width {
			t.Errorf("a chunk of %d rows has %d bytes of text, and at most %d and one text more are wanted", batch.NumRows(), texts, most)
		}
		all += int(batch.NumRows())
		return nil
	})
	if err != nil || all != 2*rows {
		t.Errorf("%d rows of %d, %v", all, 2*rows, err)
	}
}

// TestMergeReadsEachFile opens files for a merge. Each has its own connection, which is
// closed with the merge, even if a file cannot be read.
func TestMergeReadsEachFile(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	for number := range uint64(2) {
		f.appendFrame(number+1, frameOf(table, 10, testRow(10*int(number))))
		f.seal(number + 1)
	}
	s := f.mergeSession()
	defer s.close()
	connections := func() string {
		t.Helper()
		rows, err := s.conn.Run("FROM duckdb_connection_count()")
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Text(rows[0][0])
	}
	before := connections()
	rows, err := s.openMerge(table, table.Files)
	if err != nil {
		t.Fatal(err)
	}
	if merged, err := s.conn.Run("SELECT count(*), max(id) " + rows.sql()); err != nil || protocol.Text(merged[0][0]) != "20" || protocol.Text(merged[0][1]) != "19" {
		t.Errorf("merged: %v, %v", merged, err)
	}
	rows.close()
	missing := *table.Files[0]
	missing.Name = "2026-11-22/none.parquet"
	if _, err := s.openMerge(table, []*manifest.File{table.Files[0], &missing}); err == nil {
		t.Error("a file that is missing was opened")
	}
	if after := connections(); after != before {
		t.Errorf("%s connections after two merges, and %s before", after, before)
	}
	if path, err := s.writeBloom(table, table.Path(f.path, missing.Name)); err == nil {
		t.Errorf("filters of a file that is missing are in %q", path)
	}
}

func TestDeletes(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	f.appendFrame(1, frameOf(table, 100, testRow(0)))
	f.seal(1)
	f.appendFrame(2, frameOf(table, 100, testRow(100)))
	before := manifest.Position{File: 2, Offset: f.ends[1].End}
	f.appendFrame(2, frameOf(table, 100, testRow(0)))
	f.m.NextDelete++
	table.Deletes = append(table.Deletes, &manifest.Delete{Number: 1, Predicate: "id % 10 = 7 -- user", Before: before})
	f.save()
	f.want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
	f.seal(2)
	f.want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
	recomputed, err := f.client.Recompute(t.Context(), protocol.Recompute{
		Version: f.m.Version, Table: table.ID, File: table.Files[0].Name, Number: 90, Column: 2,
		Call: func(_ context.Context, _ int, documents [][]byte) ([][]byte, error) {
			return make([][]byte, len(documents)), nil
		},
	})
	if err != nil || len(recomputed) != 1 || recomputed[0].Rows != 90 || recomputed[0].Deleted != 1 {
		t.Errorf("recomputed: %+v, %v", recomputed, err)
	}
	merged := f.merge(table, []string{table.Files[0].Name, table.Files[1].Name})
	if len(merged) != 1 || merged[0].File.Rows != 280 || merged[0].File.Deleted != 1 {
		t.Fatal(merged)
	}
	if merged = f.merge(table, []string{table.Files[0].Name}); len(merged) != 1 || !merged[0].Unchanged {
		t.Errorf("a file without deleted rows: %+v", merged)
	}
	f.save()
	f.want(`SELECT count(*), count(*) FILTER (id % 10 = 7) FROM events`, "280,10")
}

func TestPredicates(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	check := func(predicate string) error {
		return f.client.CheckPredicate(t.Context(), f.m.Version, table.ID, predicate)
	}
	for _, good := range []string{`id = 7`, `event LIKE 'x%' OR id IN (1, 2) -- why`, `time < '2026-01-01'`} {
		if err := check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{``, `id = `, `nope = 1`, `id = 7) OR (true`, `id IN (SELECT id FROM events)`, `time < now()`, `time < current_timestamp`, `random() < 0.5`,
		`id = ?`, `true) GROUP BY ALL HAVING (true`, `true) LIMIT (1`, `id = 7; DROP VIEW events`, `id = 7; SELECT 1`, `id = 7 UNION SELECT 1`, `id = 7 INTERSECT SELECT 1 FROM events WHERE true`, `row_number() OVER () = 1`, `read_text('/etc/passwd') = 'x'`, `time`, `time < today()`} {
		if err := check(bad); err == nil {
			t.Errorf("%s was taken", bad)
		} else if _, ok := errors.AsType[*protocol.QueryError](err); !ok {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := check(`emial = 'x'`); err == nil || err.Error() == "" {
		t.Error("no error")
	} else if q, _ := errors.AsType[*protocol.QueryError](err); q == nil || q.Line != 1 || q.Column != 1 {
		t.Errorf("%#v", err)
	}
}

// TestReplacedWriter ends a writer while its replacement is already writing. The
// replacement's files must remain.
func TestReplacedWriter(t *testing.T) {
	c := newFolder(t, Options{}).client
	start := func() *process {
		c.mu.Lock()
		defer c.mu.Unlock()
		p, err := c.start(protocol.MergeRole, false)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	old, now := start(), start()
	file := filepath.Join(now.settings.Temp(), "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old.end()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	now.end()
}

// TestPlacesInPredicates checks that positions in a statement are converted to positions in
// the predicate, which starts within a line.
func TestPlacesInPredicates(t *testing.T) {
	const begin, predicate = "SELECT 1 FROM events WHERE ", "a = 1 AND\n                              b = 2"
	for message, want := range map[string]protocol.QueryError{
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                   ^":     {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                       ^": {Message: "no", Line: 1, Column: 5},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n               ^":                         {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 2:                               b = 2\n                                      ^":   {Message: "no", Line: 2, Column: 31},
		"Binder Error: no": {Message: "no"},
	} {
		got, ok := errors.AsType[*protocol.QueryError](predicateError(begin, begin+predicate, duckdb.NewError(message)))
		if !ok || *got != want {
			t.Errorf("%q: %+v, want %+v", message, got, want)
		}
	}
	for _, err := range []error{nil, io.ErrUnexpectedEOF} {
		if got := predicateError(begin, begin+predicate, err); got != err {
			t.Errorf("%v instead of %v", got, err)
		}
	}
}
