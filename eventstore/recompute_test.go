//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// declared returns declared columns named like their fields.
func declared(kind event.Type, names ...string) (columns []event.Column) {
	for _, name := range names {
		columns = append(columns, event.Column{Name: name, Path: []string{name}, Type: kind})
	}
	return columns
}

// recomputed waits for the recompute of a column of table events while it makes progress.
func recomputed(t testing.TB, s *Store, column string) (r catalog.Recompute) {
	t.Helper()
	for r.Ended.IsZero() {
		before, files := r, len(filesOf(s))
		waitUntil(t, s, func() bool {
			all, err := s.Recomputes("events")
			i := slices.IndexFunc(all, func(one catalog.Recompute) bool { return one.Column == column })
			if err != nil || i < 0 {
				t.Fatalf("no recompute of column %s: %v", column, err)
			}
			r = all[i]
			return !r.Ended.IsZero() || r.Done > before.Done || r.Number > before.Number || len(filesOf(s)) != files
		})
	}
	return r
}

func startRecompute(t testing.TB, s *Store, column string) catalog.Recompute {
	t.Helper()
	r, err := s.Recompute(context.Background(), "events", column)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// times returns a computed column of the id multiplied by factor.
func times(name, version string, factor int64) ComputedColumn {
	return computedBy(name, version, func(r testRow) (any, error) {
		n, err := r.number("id")
		if n == 3 && factor > 1 {
			return nil, errors.New("three is too many")
		}
		return n * factor, err
	})
}

// TestRecompute fills a new column, and then one with a changed function, in files of several
// days, in the log, during deletes and merges, and in a table without rows.
func TestRecompute(t *testing.T) {
	s := openStore(t, t.TempDir())
	config := TableConfig{Time: "time"}
	p := take(t, openTable(t, s, config))
	if _, err := s.Recompute(t.Context(), "events", "x"); err == nil || !strings.Contains(err.Error(), "nothing computes a column x of table events") {
		t.Errorf("a column that nothing computes: %v", err)
	}
	if _, err := s.Recompute(t.Context(), "nowhere", "x"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a table that does not exist: %v", err)
	}
	at := func(day int, id int) string {
		return fmt.Sprintf(`{"time":"2026-11-%02dT00:00:00Z","id":%d}`, day, id)
	}
	appendDocs(t, p, 0, at(1, 1), at(2, 2), at(3, 3))
	seal(t, s)
	appendDocs(t, p, 3, at(1, 4), at(2, 5))
	seal(t, s)
	config.Columns = declared(event.Int64, "x")
	openTable(t, s, config)
	s.SetComputed([]ComputedColumn{times("x", "1", 10)})
	appendDocs(t, p, 5, at(1, 6), at(1, 7))
	if _, err := s.Delete(t.Context(), "events", "id = 7"); err != nil {
		t.Fatal(err)
	}
	appendDocs(t, p, 7, at(1, 8))
	if got := ask(t, s, `SELECT id, x FROM events ORDER BY id`); got != "1,\n2,\n3,\n4,\n5,\n6,60\n8,80" {
		t.Errorf("before it, the table has\n%s", got)
	}
	began := startRecompute(t, s, "X")
	if began.Column != "x" || began.Table != "events" || !began.Ended.IsZero() || began.Files < 1 {
		t.Errorf("at the start: got %+v, want a recompute of column x of events in some files", began)
	}
	r := recomputed(t, s, "x")
	if r.Number != began.Number || r.Stopped || r.Failed != 1 || r.Error != "x: three is too many" || r.Rows < 5 || r.Rows > 8 {
		t.Errorf("at the end: got %+v, want recompute %d with one failed row", r, began.Number)
	}
	if got := ask(t, s, `SELECT id, x FROM events ORDER BY id`); got != "1,10\n2,20\n3,\n4,40\n5,50\n6,60\n8,80" {
		t.Errorf("the table has\n%s", got)
	}
	s.SetComputed([]ComputedColumn{times("x", "2", -1)})
	startRecompute(t, s, "x")
	if r := recomputed(t, s, "x"); r.Number <= began.Number || r.Failed != 0 || r.Error != "" || r.Rows != 7 {
		t.Errorf("at the end of the second: got %+v, want 7 rows and no failure", r)
	}
	if got := ask(t, s, `SELECT id, x FROM events ORDER BY id`); got != "1,-1\n2,-2\n3,-3\n4,-4\n5,-5\n6,-6\n8,-8" {
		t.Errorf("then the table has\n%s", got)
	}
	if _, err := s.Delete(t.Context(), "events", "true"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, s, func() bool { return len(filesOf(s)) == 0 })
	startRecompute(t, s, "x")
	if r := recomputed(t, s, "x"); r.Rows != 0 {
		t.Errorf("at the end, of a table without rows: got %+v, want no rows", r)
	}
}

// TestRecomputeSeesTheEvent checks that a function sees the same row on append and on
// recompute: every type, objects, fields without a column, and null.
func TestRecomputeSeesTheEvent(t *testing.T) {
	docs := []string{
		`{"time":1767323045123,"id":1,"b":true,"i":-9007199254740993,"f":1.5,"g":1e300,"s":"a \"text\"\n\u0000 of ☾","j":[1.0,{"a":null,"b":"x"}],"price":10.50,
			"raw":"AAEC/w==","us":1767323045123456,"ns":1767323045123456789,"text":"2026-01-02T03:04:05.000000Z","user":{"id":5,"name":"n"},"deep":{"a":{"b":2},"c":3},"other":{"x":[1]},"more":"☾"}`,
		`{"time":1767323045124,"id":2,"b":null,"user":{"name":"m"},"deep":{"a":7}}`,
		`{"time":1767323045125,"id":3,"s":"","j":"text","more":1}`,
	}
	for _, unknown := range []catalog.Unknown{catalog.AddUnknown, catalog.KeepUnknown, catalog.DropUnknown} {
		t.Run("unknown "+string(unknown), func(t *testing.T) {
			s := openStore(t, t.TempDir())
			column := func(kind event.Type, path ...string) event.Column {
				return event.Column{Name: strings.Join(path, "_"), Path: path, Type: kind}
			}
			unit := func(c event.Column, u event.Unit) event.Column {
				c.Unit = u
				return c
			}
			table := openTable(t, s, TableConfig{Time: "time", TimeUnit: event.Milliseconds, Unknown: unknown, Columns: []event.Column{
				column(event.Int64, "id"), column(event.Bool, "b"), column(event.Int64, "i"), column(event.Float64, "f"), column(event.Float64, "g"), column(event.String, "s"), column(event.JSON, "j"),
				{Name: "price", Path: []string{"price"}, Type: event.Decimal, Digits: event.Digits{Precision: 9, Scale: 2}}, column(event.Bytes, "raw"),
				unit(column(event.Timestamp, "us"), event.Microseconds), unit(column(event.TimestampNS, "ns"), event.Nanoseconds), unit(column(event.Timestamp, "text"), event.TextOnly),
				column(event.Int64, "user", "id"), column(event.String, "user", "name"), column(event.JSON, "deep", "a"), column(event.JSON, "seen"), column(event.Int64, "later"),
			}})
			columns := []ComputedColumn{
				computedBy("seen", "1", func(r testRow) (any, error) { return r, nil }),
				computedBy("later", "1", func(r testRow) (any, error) { return r.number("id") }),
			}
			s.SetComputed(columns)
			p := take(t, table)
			appendDocs(t, p, 0, docs...)
			if unknown == catalog.AddUnknown { // some rows lack this column
				appendDocs(t, p, 3, `{"time":0,"id":4,"new":1}`)
			}
			seal(t, s)
			seen := func() (rows []any) {
				for line := range strings.Lines(ask(t, s, `SELECT to_json({'id': id, 'seen': seen}) FROM events WHERE id < 4 ORDER BY id`)) {
					var row any
					decoder := json.NewDecoder(strings.NewReader(strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), `"`), `""`, `"`)))
					decoder.UseNumber()
					if err := decoder.Decode(&row); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					rows = append(rows, normal(row))
				}
				return rows
			}
			before := seen()
			columns[0] = computedBy("seen", "2", func(r testRow) (any, error) { return r, nil })
			s.SetComputed(columns)
			startRecompute(t, s, "seen")
			if r := recomputed(t, s, "seen"); r.Failed > 0 {
				t.Fatalf("at the end: got %+v, want no failed rows", r)
			}
			after := seen()
			if unknown == catalog.DropUnknown { // the function cannot see fields that are not stored
				for i, row := range before {
					seen := row.(map[string]any)["seen"].(map[string]any)
					delete(seen, "other")
					delete(seen, "more")
					if deep, ok := seen["deep"].(map[string]any); ok {
						delete(deep, "c")
					}
					before[i] = row
				}
			}
			if !reflect.DeepEqual(after, before) {
				t.Errorf("recomputed from\n%v\nbut appended as\n%v", after, before)
			}
		})
	}
}

// normal makes values equal that a function cannot distinguish: null and a missing field,
// 1.50 and 1.5.
func normal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, one := range value {
			if value[key] = normal(one); value[key] == nil {
				delete(value, key)
			}
		}
		if len(value) == 0 { // all of its fields are missing
			return nil
		}
	case []any:
		for i := range value {
			value[i] = normal(value[i])
		}
	case json.Number:
		if f, err := value.Float64(); err == nil && strings.ContainsAny(string(value), ".eE") {
			return fmt.Sprint(f)
		}
		return string(value)
	}
	return value
}

// TestRecomputeGoesOn closes the store during a recompute, opens it without the function, and
// then with it. Finished files stay finished, and queries see all rows.
func TestRecomputeGoesOn(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	const days = 6
	config := TableConfig{Time: "time", Columns: declared(event.Int64, "x")}
	p := take(t, openTable(t, s, config))
	for day := range uint64(days) {
		appendDocs(t, p, day, fmt.Sprintf(`{"time":"2026-11-%02dT00:00:00Z","id":%d}`, day+1, day+10))
	}
	seal(t, s)
	var calls atomic.Int64
	begun, release := make(chan bool), make(chan bool)
	waiting := computedBy("x", "1", func(r testRow) (any, error) {
		if calls.Add(1) == 4 {
			close(begun)
			<-release
		}
		return r.number("id")
	})
	s.SetComputed([]ComputedColumn{waiting})
	startRecompute(t, s, "x")
	<-begun
	if got := ask(t, s, `SELECT count(*), count(x) FROM events`); got != "6,3" {
		t.Errorf("in the middle queries see %s", got)
	}
	if got := ask(t, s, `SELECT recomputing FROM segments WHERE recomputing IS NOT NULL`); got != "x\nx\nx" {
		t.Errorf("in the middle segments wait for\n%s", got)
	}
	all, err := s.Tables()
	if err != nil || len(all) != 1 || len(all[0].Files) != days {
		t.Fatalf("in the middle the tables are %+v, %v", all, err)
	}
	waits := map[string]int{}
	for _, f := range all[0].Files {
		waits[f.Recomputing]++
	}
	if waits["x"] != 3 || waits[""] != 3 {
		t.Errorf("in the middle so many files wait: %v", waits)
	}
	go close(release)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, folder)
	if all, err := s.Recomputes("events"); err != nil || len(all) != 1 || !all[0].Idle || all[0].Done < 3 || all[0].Rows != int64(all[0].Done) {
		t.Errorf("opened again, it is %+v, %v", all, err)
	}
	done := calls.Load()
	s.SetComputed([]ComputedColumn{waiting})
	if r := recomputed(t, s, "x"); r.Rows != days || r.Failed != 0 {
		t.Errorf("at the end: got %+v, want %d rows and no failure", r, days)
	}
	if n := calls.Load() - done; n > days-3 {
		t.Errorf("got %d rows that were computed again, want at most %d", n, days-3)
	}
	if got := ask(t, s, `SELECT sum(x), count(*) FROM events`); got != "75,6" {
		t.Errorf("at the end queries see %s", got)
	}
	if got := ask(t, s, `SELECT count(recomputing) FROM segments`); got != "0" {
		t.Errorf("%s segments wait for a recompute that has ended", got)
	}
}

// TestCancelRecompute cancels a recompute midway. Finished files keep their new values, no
// other file gets any, and a later recompute computes all.
func TestCancelRecompute(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	const days = 6
	p := take(t, openTable(t, s, TableConfig{Time: "time", Columns: declared(event.Int64, "x")}))
	for day := range uint64(days) {
		appendDocs(t, p, day, fmt.Sprintf(`{"time":"2026-11-%02dT00:00:00Z","id":%d,"x":1}`, day+1, day+10))
	}
	seal(t, s)
	if _, err := s.CancelRecompute("events", "x"); !event.IsPermanent(err) || !strings.Contains(err.Error(), "no recompute of column x of table events is running") {
		t.Errorf("cancel what nobody asked for: %v", err)
	}
	var calls atomic.Int64
	begun, release := make(chan bool), make(chan bool)
	waiting := computedBy("x", "1", func(r testRow) (any, error) {
		if calls.Add(1) == 3 {
			close(begun)
			<-release
		}
		return r.number("id")
	})
	s.SetComputed([]ComputedColumn{waiting})
	began := startRecompute(t, s, "x")
	<-begun
	r, err := s.CancelRecompute("Events", "X")
	if err != nil || r.Number != began.Number || !r.Stopped || r.Error != "canceled" || r.Ended.IsZero() {
		t.Errorf("it is canceled as %+v, %v", r, err)
	}
	close(release)
	if _, err := s.CancelRecompute("events", "x"); err == nil {
		t.Error("it was canceled twice")
	}
	for range 2 {
		time.Sleep(200 * time.Millisecond) // detects a compactor that wrongly continues
		if got := ask(t, s, `SELECT count(*), count(*) FILTER (x >= 10) FROM events`); got != "6,3" && got != "6,2" {
			t.Errorf("afterwards queries see %s", got)
		}
		s.Close()
		s = openStore(t, folder)
		s.SetComputed([]ComputedColumn{waiting})
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("%d rows were computed, want 3", n)
	}
	startRecompute(t, s, "x")
	if r := recomputed(t, s, "x"); r.Stopped || r.Rows != days {
		t.Errorf("at the end of a later one: got %+v, want %d rows", r, days)
	}
	if got := ask(t, s, `SELECT sum(x), count(*) FROM events`); got != "75,6" {
		t.Errorf("then queries see %s", got)
	}
}

// TestRecomputeOfChangedFunction changes the function midway. All files must be computed with
// the new one.
func TestRecomputeOfChangedFunction(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Columns: declared(event.Int64, "x")}))
	appendDocs(t, p, 0, `{"time":"2026-11-01T00:00:00Z","id":1}`, `{"time":"2026-11-02T00:00:00Z","id":2}`, `{"time":"2026-11-03T00:00:00Z","id":4}`)
	seal(t, s)
	var version atomic.Value
	version.Store("1")
	c := computedBy("x", "", func(testRow) (any, error) {
		if version.CompareAndSwap("1", "2") { // during the first call
			return 1, nil
		}
		return 2, nil
	})
	c.Version = func() string { return version.Load().(string) }
	s.SetComputed([]ComputedColumn{c})
	first := startRecompute(t, s, "x")
	if r := recomputed(t, s, "x"); r.Number <= first.Number || r.Rows != 3 {
		t.Errorf("at the end: got %+v, want a later one than %d, with 3 rows", r, first.Number)
	}
	if got := ask(t, s, `SELECT string_agg(x, '') FROM events`); got != "222" {
		t.Errorf("the column has %s", got)
	}
}

// TestRecomputeThatCannotGoOn checks that a recompute with a stuck function ends with its
// error. Unfinished files keep their values.
func TestRecomputeThatCannotGoOn(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Columns: declared(event.Int64, "x")}))
	appendDocs(t, p, 0, `{"id":1,"x":7}`)
	seal(t, s)
	s.SetComputed([]ComputedColumn{{Table: "events", Name: "x", Version: func() string { return "1" }, Compute: func(context.Context, *event.Batch, *event.Result) error {
		return &FunctionError{errors.New("it runs for ever")}
	}}})
	startRecompute(t, s, "x")
	if r := recomputed(t, s, "x"); r.Rows != 0 || r.Failed != 0 || !r.Stopped || !strings.Contains(r.Error, "it runs for ever") {
		t.Errorf("at the end: got %+v, want that it was stopped because it runs for ever", r)
	}
	if got := ask(t, s, `SELECT x FROM events`); got != "7" {
		t.Errorf("the column has %s", got)
	}
	for _, test := range []struct {
		spent        time.Duration
		rows, failed int64
		stuck        bool
	}{{stuckTime, 10, 10, false}, {stuckTime + 1, 10, 5, false}, {stuckTime + 1, 10, 6, true}, {time.Hour, 1, 1, true}} {
		w := recomputeWork{spent: test.spent, rows: test.rows, failed: test.failed, first: "too slow"}
		err := w.checkProgress()
		if (err != nil) != test.stuck || w.ended != err || err != nil && !strings.HasSuffix(err.Error(), "too slow") {
			t.Errorf("%d of %d rows failed in %v: got %v, ended %v", test.failed, test.rows, test.spent, err, w.ended)
		}
	}
}

// TestRecomputeSortsAgain recomputes the event column, by which files are sorted and which
// has bloom filters.
func TestRecomputeSortsAgain(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Event: "kind", Columns: declared(event.String, "kind")}))
	var docs []string
	for id := range 100 {
		docs = append(docs, fmt.Sprintf(`{"time":"2026-11-01T00:00:00Z","id":%d,"kind":"old %02d"}`, id, id))
	}
	appendDocs(t, p, 0, docs...)
	seal(t, s)
	s.SetComputed([]ComputedColumn{computedBy("kind", "1", func(r testRow) (any, error) {
		id, err := r.number("id")
		return fmt.Sprintf("new %02d", 99-id), err
	})})
	startRecompute(t, s, "kind")
	recomputed(t, s, "kind")
	if got := ask(t, s, `SELECT id FROM events WHERE kind = 'new 07'`); got != "92" {
		t.Errorf("found by its new kind: %q", got)
	}
	entry := s.current().Table("events")
	got := ask(t, s, `SELECT bool_and(kind >= last) FROM (SELECT kind, lag(kind) OVER () AS last FROM events)`)
	if files := filesOf(s); got != "true" || len(files) != 1 || files[0].Bloom == "" || files[0].Computed != entry.Recomputes[0].Number {
		t.Errorf("sorted: %s, file %+v", got, files[0])
	}
}

// TestRecomputeMovesDays recomputes the time column. Rows move to files of other days; rows
// for which the function fails move to the day of rows without a time.
func TestRecomputeMovesDays(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Event: "kind", Columns: declared(event.Timestamp, "time")}))
	var docs []string
	for id := range 30 {
		docs = append(docs, fmt.Sprintf(`{"time":"2026-11-01T00:00:00Z","id":%d,"kind":"k%d"}`, id, id%2))
	}
	appendDocs(t, p, 0, docs...)
	seal(t, s)
	s.SetComputed([]ComputedColumn{computedBy("time", "1", func(r testRow) (any, error) {
		id, err := r.number("id")
		if id%10 == 0 {
			return nil, errors.New("no time for it")
		}
		return fmt.Sprintf("2026-11-%02dT00:00:%02dZ", 1+id%3, 59-id), err
	})})
	startRecompute(t, s, "time")
	if r := recomputed(t, s, "time"); r.Rows != 30 || r.Failed != 3 {
		t.Errorf("got %+v", r)
	}
	if got := ask(t, s, `SELECT count(*), count(time), count(DISTINCT id), count(DISTINCT time) FROM events`); got != "30,27,30,27" {
		t.Errorf("got %s", got)
	}
	days := map[string]int64{}
	for _, f := range filesOf(s) {
		days[f.Day] += f.Rows
		got := ask(t, s, fmt.Sprintf(`SELECT coalesce(bool_and(key >= last), true) FROM (SELECT (kind, time) AS key, lag(key) OVER () AS last FROM events WHERE CAST(time AS DATE) = DATE '%s')`, f.Day))
		if got != "true" {
			t.Errorf("file %s is sorted: %s", f.Name, got)
		}
	}
	if got := fmt.Sprint(days); got != "map[1970-01-01:3 2026-11-01:9 2026-11-02:9 2026-11-03:9]" {
		t.Errorf("rows are in %s", got)
	}
}

// TestComputedUpTo checks that a recompute applies to every log file that has a frame before
// it.
func TestComputedUpTo(t *testing.T) {
	at := func(file uint64, offset int64) wal.Position {
		return wal.Position{File: file, Offset: offset}
	}
	table := manifest.Table{Recomputes: []*manifest.Recompute{{Number: 4, Before: at(2, 128)}, {Number: 7, Before: at(2, 500), Ended: time.Now()}, {Number: 9, Before: at(3, 128)}}}
	for file, want := range map[uint64]uint64{1: 0, 2: 4, 3: 9, 4: 9} {
		if got := table.ComputedUpTo(at(file, 128)); got != want {
			t.Errorf("log file %d is computed up to %d, want %d", file, got, want)
		}
	}
}

// TestRecomputeUnderLoad runs recomputes with successive functions while rows are appended,
// sealed and merged. Each query must see every row acknowledged before it, with a value of
// one of the functions.
func TestRecomputeUnderLoad(t *testing.T) {
	s, err := Open(t.TempDir(), workOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := take(t, openTable(t, s, TableConfig{Time: "time", Columns: declared(event.Int64, "mark")}))
	s.SetComputed([]ComputedColumn{marking("1")})
	const batches = 40
	var acknowledged atomic.Int64
	appended := make(chan error, 1)
	go func() {
		for i := range uint64(batches) {
			if err := p.Append(context.Background(), outputOf(i*workBatch, workDocs(eventsTable, i*workBatch)...)); err != nil {
				appended <- err
				return
			}
			acknowledged.Add(workBatch)
		}
		appended <- nil
	}()
	check := func() {
		before := acknowledged.Load()
		var rows, wrong int64
		answer := ask(t, s, fmt.Sprintf(`SELECT count(*), count(*) FILTER (mark IS NULL OR mark // %d <> id) FROM events`, marksPerID))
		if _, err := fmt.Sscanf(answer, "%d,%d", &rows, &wrong); err != nil || rows < before || wrong > 0 {
			t.Errorf("of %d rows, a query sees %s", before, answer)
		}
	}
	for version := 2; version < 4; version++ {
		s.SetComputed([]ComputedColumn{marking(fmt.Sprint(version))})
		r := startRecompute(t, s, "mark")
		await(t, "a recompute has ended", func() bool {
			check()
			all, _ := s.Recomputes("events")
			return t.Failed() || !all[0].Ended.IsZero() && all[0].Number == r.Number
		})
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	check()
	if got := ask(t, s, fmt.Sprintf(`SELECT count(*), count(*) FILTER (mark %% %d = 3) FROM events`, marksPerID)); got != fmt.Sprintf("%d,%[1]d", batches*workBatch) {
		t.Errorf("at the end, rows and those of the last function are %s", got)
	}
	if sealedFiles(s) < 3 {
		t.Error("hardly a file of the log was sealed: the test proves little")
	}
}

// TestMergeDuringRecompute merges files that wait for a recompute, and files that do not, but
// never both kinds together.
func TestMergeDuringRecompute(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time", Columns: declared(event.Int64, "x")}))
	add := func(id uint64) {
		appendDocs(t, p, id, fmt.Sprintf(`{"time":"2026-11-01T00:00:00Z","id":%d}`, id))
	}
	for id := range uint64(mergeMin - 1) {
		add(id)
		seal(t, s)
	}
	add(mergeMin - 1) // in the log
	s.SetComputed([]ComputedColumn{{Table: "events", Name: "x", Version: func() string { return "1" }, Compute: func(context.Context, *event.Batch, *event.Result) error {
		return errors.New("not now")
	}}})
	startRecompute(t, s, "x")
	s.SetComputed(nil)
	waitUntil(t, s, func() bool { return len(filesOf(s)) == 1 })
	for id := range uint64(mergeMin) {
		add(mergeMin + id)
		seal(t, s)
	}
	waitUntil(t, s, func() bool { return len(filesOf(s)) == 2 })
	s.SetComputed([]ComputedColumn{times("x", "1", 1)})
	if r := recomputed(t, s, "x"); r.Rows != mergeMin {
		t.Errorf("at the end: got %+v, want %d rows", r, mergeMin)
	}
	if got := ask(t, s, `SELECT string_agg(coalesce(CAST(x AS VARCHAR), '-'), '' ORDER BY id) FROM events`); got != "0123----" {
		t.Errorf("the rows have %s", got)
	}
}
