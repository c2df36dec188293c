//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/document"
)

func TestColumnsWiden(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string // one commit each
		column string   // SQL type of the column
		want   string   // all values as SQL shows them
	}{
		{"bool", []string{`true`, `false`}, "BOOLEAN", "true|false"},
		{"int", []string{`1`, `-9223372036854775808`}, "BIGINT", "1|-9223372036854775808"},
		{"integers spelled as fractions", []string{`1.0`, `2e3`}, "BIGINT", "1|2000"},
		{"int to double", []string{`1`, `2.5`, `3`}, "DOUBLE", "1.0|2.5|3.0"},
		{"double keeps ints", []string{`2.5`, `1`}, "DOUBLE", "2.5|1.0"},
		{"an int beyond a double, then a fraction", []string{`9007199254740993`, `0.5`}, "JSON", "9007199254740993|0.5"},
		{"a double, then an int beyond it", []string{`0.5`, `9007199254740993`}, "JSON", "0.5|9007199254740993"},
		{"the same after an int that a double holds", []string{`0.5`, `1`, `9007199254740993`}, "JSON", "0.5|1.0|9007199254740993"},
		{"an int beyond 64 bits", []string{`1`, `18446744073709551616`}, "JSON", "1|18446744073709551616"},
		{"text that is a number", []string{`1`, `"1"`}, "JSON", `1|"1"`},
		{"text that looks like JSON", []string{`"{}"`, `{}`}, "JSON", `"{}"|{}`},
		{"text and bool", []string{`"true"`, `true`}, "JSON", `"true"|true`},
		{"object, as it was spelled", []string{`{ "b":1.10, "a":[ ] }`}, "JSON", `{ "b":1.10, "a":[ ] }`},
		{"null, then a value", []string{`null`, `null`, `7`}, "BIGINT", "||7"},
		{"a value, then null", []string{`"x"`, `null`}, "VARCHAR", "x|"},
		{"only nulls", []string{`null`}, "JSON", ""},
		{"a time is text", []string{`"2026-01-01T00:00:00Z"`}, "VARCHAR", "2026-01-01T00:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			table := openTable(t, s, TableConfig{})
			p := take(t, table)
			for i, value := range test.values {
				appendDocs(t, p, uint64(i), fmt.Sprintf(`{"n":%d,"x":%s}`, i, value))
			}
			info := describedTables(s)[0].Columns
			if got := info[len(info)-1]; got != (catalog.Column{Name: "x", Type: test.column}) {
				t.Errorf("the column is %v, want x %s", got, test.column)
			}
			if got := ask(t, s, `SELECT string_agg(coalesce(x::VARCHAR, ''), '|' ORDER BY n) AS "all" FROM events`); strings.Trim(strings.ReplaceAll(got, `""`, `"`), `"`) != strings.Trim(test.want, `"`) {
				t.Errorf("values are %s, want %s", got, test.want)
			}
		})
	}
}

func TestNamesOfColumns(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"Id":1,"id":2,"ID":3,"select":4,"":5,"_":6,"_rest":7,"tab\tkey":8,"quo\"te":9,"id_2":10,"☾":11,"nul\u0000":12}`)
	got := ask(t, s, `SELECT string_agg(column_name, ' ' ORDER BY column_index) FROM duckdb_columns() WHERE table_name = 'events'`)
	want := `Id id_2 ID_3 select _ __2 _rest_2 tab_key quo"te id_2_2 ☾ nul_`
	if unquoted := strings.Trim(strings.ReplaceAll(got, `""`, `"`), `"`); unquoted != want {
		t.Errorf("columns are %s, want %s", unquoted, want)
	}
	if got := ask(t, s, `SELECT * FROM events`); got != "1,2,3,4,5,6,7,8,9,10,11,12" {
		t.Errorf("values are %s", got)
	}
}

func TestFieldsBeyondTheColumns(t *testing.T) {
	var fields []string
	for i := range columnsMax + 50 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	wide := "{" + strings.Join(fields, ",") + "}"
	long := strings.Repeat("k", keyMax+1)
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	appendDocs(t, p, 0, `{"f0":-1}`, wide, `{"`+long+`":{"a":[1.50]},"g":null}`)
	if got := ask(t, s, `SELECT count(*), sum(f0), sum(f199), sum(CAST(_rest->>'f200' AS BIGINT)), sum(CAST(_rest->>'f249' AS BIGINT)), count(_rest) FROM events`); got != "3,-1,199,200,249,2" {
		t.Errorf("got %s", got)
	}
	if got := ask(t, s, `SELECT _rest FROM events WHERE f0 IS NULL`); got != `"{""`+long+`"":{""a"":[1.50]}}"` {
		t.Errorf("got %s", got)
	}
	if n := len(describedTables(s)[0].Columns); n != columnsMax+1 {
		t.Errorf("got %d columns of the table, want %d", n, columnsMax+1)
	}
}

// TestWideEventsFit appends events with more fields than a table can have columns. Each type
// change copies all rows into a new segment, in one transaction and in memory.
func TestWideEventsFit(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	next := uint64(0)
	appendRows := func(rows int, doc string) {
		t.Helper()
		docs := slices.Repeat([]string{doc}, rows)
		if err := p.Append(t.Context(), outputOf(next, docs...)); err != nil {
			t.Fatal(err)
		}
		next += uint64(rows)
	}
	wide := func(fields int, value string) string {
		var doc strings.Builder
		for i := range fields {
			fmt.Fprintf(&doc, `"f%d":%s,`, i, value)
		}
		return "{" + doc.String() + `"id":1}`
	}
	rows := 3000
	if testing.Short() {
		rows = 300
	}
	appendRows(2*rows, `{"id":1}`)
	for _, value := range []string{"1", `"a text"`, "[1]"} {
		appendRows(1, wide(1000, value))
		appendRows(1, `{"id":1}`)
		appendRows(rows, wide(columnsMax, value))
	}
	if got, want := ask(t, s, "SELECT count(*), sum(id) FROM events"), fmt.Sprintf("%d,%[1]d", 5*rows+6); got != want {
		t.Errorf("count and sum are %s, want %s", got, want)
	}
}

func TestDeclaredColumnsAreBounded(t *testing.T) {
	columns := make([]event.Column, columnsMax+1)
	for i := range columns {
		name := fmt.Sprintf("f%d", i)
		columns[i] = event.Column{Name: name, Path: []string{name}, Type: event.Int64}
	}
	s := openStore(t, t.TempDir())
	if _, err := s.Table("events", TableConfig{Columns: columns}); err == nil || !strings.Contains(err.Error(), "201 columns") {
		t.Errorf("got %v, want an error that counts the columns", err)
	}
}

func TestDeclaredColumns(t *testing.T) {
	s := openStore(t, t.TempDir())
	config := TableConfig{Time: "time", Columns: []event.Column{
		{Name: "email", Path: []string{"user", "email"}, Type: event.String, Required: true},
		{Name: "price", Path: []string{"price"}, Type: event.Decimal},
		{Name: "small", Path: []string{"small"}, Type: event.Int32},
	}}
	table := openTable(t, s, config)
	p := take(t, table)
	if got := ask(t, s, `SELECT count(*), min(time), min(email) FROM events`); got != "0,," {
		t.Errorf("a new table answers %s", got)
	}
	good := `{"time":1767323045,"user":{"email":"a@b.c","age":7},"price":1.10,"small":3,"other":true}`
	err := p.Append(context.Background(), outputOf(0, good, `{"time":1,"user":{}}`, `{"user":{"email":"x"}}`, `not json`,
		`{"time":1,"user":{"email":"x"},"small":2147483648}`, `{"time":"yesterday","user":{"email":"x"}}`))
	refused, ok := errors.AsType[*RejectedRows](err)
	if !ok || len(refused.Rows) != 5 {
		t.Fatalf("got %v, want five rows refused", err)
	}
	for i, want := range []string{"user.email is missing", "time is missing", "not a JSON object", "2147483648, which is out of range", `use RFC 3339`} {
		if row := refused.Rows[i]; row.Row != i+1 || !strings.Contains(row.Reason, want) {
			t.Errorf("row %d: %s, want row %d: %s", row.Row, row.Reason, i+1, want)
		}
	}
	appendDocs(t, p, 0, good)
	if got := ask(t, s, `SELECT time, email, price, small, "user"->>'age', other FROM events`); got != "2026-01-02 03:04:05,a@b.c,1.10,3,7,true" {
		t.Errorf("got %s", got)
	}

	for name, c := range map[string]TableConfig{
		"the time column is": {Time: "at"},
		"column small is declared as string of field small, but the table has it as int32": {Time: "time", Columns: []event.Column{{Name: "small", Path: []string{"small"}, Type: event.String}}},
	} {
		_, err := s.Table("events", c)
		if wrong, ok := errors.AsType[*event.PermanentError](err); !ok || !strings.Contains(err.Error(), name) || wrong.Hint == "" {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	for _, name := range []string{"", "a b", "1a", `x"`, "Events", strings.Repeat("x", 64)} {
		_, err := s.Table(name, TableConfig{})
		if wrong, ok := errors.AsType[*event.PermanentError](err); !ok || wrong.Hint == "" {
			t.Errorf("a table called %q: %v", name, err)
		}
	}
}

// TestVersionsOfTheSchema queries rows of three schema versions in files and in the log.
func TestVersionsOfTheSchema(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	docs := make([]string, 5000)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"id":%d}`, i)
	}
	next := uint64(len(docs))
	appendDocs(t, p, 0, docs...)
	seal(t, s)
	appendDocs(t, p, next, `{"id":1.5,"name":"x"}`)
	seal(t, s)
	appendDocs(t, p, next+1, `{"id":"text","more":1}`)
	for range 2 {
		if got := ask(t, s, `SELECT count(*), count(name), sum(more), min(id::VARCHAR), max(id::VARCHAR) FILTER (name = 'x') FROM events`); got != `5002,1,1,"""text""",1.5` {
			t.Errorf("got %s", got)
		}
		if got := ask(t, s, `SELECT id FROM events WHERE id::VARCHAR = '777'`); got != "777" {
			t.Errorf("got %s", got)
		}
		s.Close()
		s = openStore(t, folder)
	}
}

// TestUnusedVersionsGo checks that the manifest drops unused schema versions.
func TestUnusedVersionsGo(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{}))
	for i := range uint64(20) {
		appendDocs(t, p, i, fmt.Sprintf(`{"id":1,"c%d":1}`, i))
	}
	if n := len(s.current().Table("events").Schemas); n < 20 {
		t.Errorf("%d versions, want those that the log has", n)
	}
	seal(t, s)
	if n := len(s.current().Table("events").Schemas); n != 1 {
		t.Errorf("%d versions after all rows became files of the newest", n)
	}
}

// TestVersionsAreBounded appends events that each add or widen a column. Queries and the
// manifest must not pay for every version.
func TestVersionsAreBounded(t *testing.T) {
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{})
	p := take(t, table)
	const columns = versionsMax
	for i := range uint64(columns) {
		for n, value := range []string{"1", `"x"`} {
			appendDocs(t, p, 2*i+uint64(n), fmt.Sprintf(`{"id":1,"c%d":%s}`, i, value))
		}
		table.mu.Lock()
		for file, versions := range table.schemasOf {
			if len(versions) > versionsMax {
				t.Fatalf("file %d of the log has %d versions of the schema, want at most %d", file, len(versions), versionsMax)
			}
		}
		table.mu.Unlock()
	}
	if got := ask(t, s, `SELECT count(*), sum(id), count(c0), count(c63) FROM events`); got != "128,128,2,2" {
		t.Errorf("got %s", got)
	}
}

func TestEventsWithoutFields(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{}`, `{}`)
	if got := ask(t, s, `SELECT count(*) FROM events`); got != "2" {
		t.Errorf("got %s rows", got)
	}
}

// TestSchemaInUseStays checks that a schema version stays in the manifest while an append
// uses it, although no file and no frame has it.
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

func TestWidest(t *testing.T) {
	const (
		null, boolean, whole, float, text, object = document.Null, document.Bool, document.Int, document.Float, document.String, document.Object
	)
	for _, test := range []struct {
		have  event.Type
		wide  bool
		kinds document.Kind
		want  event.Type
	}{
		{0, false, null, 0}, {0, false, boolean, event.Bool}, {0, false, whole, event.Int64}, {0, false, float, event.Float64},
		{0, false, float | whole, event.Float64}, {0, false, text | null, event.String}, {0, false, object, event.JSON}, {0, false, boolean | text, event.JSON},
		{event.Int64, false, null, event.Int64}, {event.Int64, false, whole, event.Int64}, {event.Int64, false, float, event.Float64},
		{event.Int64, true, float, event.JSON}, {event.Int64, true, whole, event.Int64}, {event.Float64, false, whole, event.Float64},
		{event.Float64, true, whole, event.Float64}, {event.Bool, false, whole, event.JSON}, {event.String, false, float, event.JSON},
		{event.JSON, false, whole, event.JSON}, {event.Bool, false, boolean | null, event.Bool}, {event.Float64, false, boolean, event.JSON},
	} {
		if got := widest(test.have, test.wide, test.kinds); got != test.want {
			t.Errorf("%v, wide %v, with %v: %v, want %v", test.have, test.wide, test.kinds, got, test.want)
		}
	}
}

// TestExactIntegers checks from which integer on a double is not exact.
func TestExactIntegers(t *testing.T) {
	for value, want := range map[int64]bool{0: false, 1<<53 - 1: false, 1 << 53: true, -(1<<53 - 1): false, -(1 << 53): true, math.MinInt64: true} {
		for _, declared := range []bool{false, true} {
			s := newSchema()
			s.addColumn(column{Name: "n", Path: []string{"n"}, Type: event.Int64, Declared: declared})
			s.addColumn(column{Name: "f", Path: []string{"f"}, Type: event.Float64, Declared: declared})
			cols := &event.Columns{Rows: 2, Vectors: []event.Vector{{Ints: []int64{0, value}}, {Floats: []float64{0, float64(value)}}}}
			next := s.grownFor(document.Report{}, cols, []int{0, 1})
			if got := next.Columns[0].Wide; got != (want && !declared) {
				t.Errorf("%d, declared %v: the integers are wide: %v", value, declared, got)
			}
			if got := next.Columns[1].Type == event.JSON; got != (want && !declared) {
				t.Errorf("%d, declared %v: the doubles became JSON: %v", value, declared, got)
			}
			if (next == s) == (want && !declared) || s.Columns[0].Wide || s.Columns[1].Type != event.Float64 {
				t.Errorf("%d, declared %v: the schema before has changed, or a new one has not", value, declared)
			}
		}
	}
	// A column with both kinds in one output loses neither.
	s := newSchema()
	s.addColumn(column{Name: "n", Path: []string{"n"}, Type: event.Int64})
	report := document.Report{Rejected: []document.Rejected{{Row: 0, Column: 0, Kind: document.Float}}}
	if next := s.grownFor(report, &event.Columns{Rows: 2, Vectors: []event.Vector{{Ints: []int64{0, 1 << 53}}}}, []int{0}); next.Columns[0].Type != event.JSON {
		t.Errorf("a fraction and an integer beyond a double: %v", next.Columns[0].Type)
	}
}

func TestLimitsOfColumns(t *testing.T) {
	s := newSchema()
	for i := range columnsMax {
		s.add(fmt.Sprint("c", i), document.Int)
	}
	if len(s.Columns) != columnsMax || s.Rest {
		t.Errorf("got %d columns, rest %v, want %d without rest", len(s.Columns), s.Rest, columnsMax)
	}
	s.add("one more", document.Null)
	if len(s.Columns) != columnsMax || s.Rest {
		t.Errorf("after a null: got %d columns, rest %v, want %d without rest", len(s.Columns), s.Rest, columnsMax)
	}
	s.add("one more", document.Int)
	if len(s.Columns) != columnsMax || !s.Rest {
		t.Errorf("after another: got %d columns, rest %v, want %d with rest", len(s.Columns), s.Rest, columnsMax)
	}
	for length, want := range map[int]bool{keyMax: true, keyMax + 1: false} {
		s := newSchema()
		s.add(strings.Repeat("k", length), document.Int)
		if (len(s.Columns) == 1) != want || s.Rest == want {
			t.Errorf("a key of %d bytes: got %d columns, rest %v, want that it becomes a column: %v", length, len(s.Columns), s.Rest, want)
		}
	}
	names := newSchema()
	for key, want := range map[string]string{"a": "a", "": "_", "_rest": "_rest_2", "_REST": "_REST_2", "a\tb\x7f\x1f": "a_b__", " ~": " ~"} {
		if got := names.name(key); got != want {
			t.Errorf("the column of key %q is %q, want %q", key, got, want)
		}
	}
	for i, want := range []string{"x", "X_2", "x_3"} {
		names.addColumn(column{Name: names.name([]string{"x", "X", "x"}[i])})
		if c := names.Columns[i]; c.Name != want || c.ID != int32(manifest.RestID+1+i) {
			t.Errorf("column %d is %s with ID %d, want %s", i, c.Name, c.ID, want)
		}
	}
}

// TestColumnsWithoutType assigns a type, in place, to columns that have had only nulls.
func TestColumnsWithoutType(t *testing.T) {
	s := newSchema()
	for _, name := range []string{"a", "b", "c"} {
		s.add(name, document.Null)
	}
	report := document.Report{Unknown: []document.Field{{Name: "a", Kinds: document.Int}, {Name: "b", Kinds: document.Null}, {Name: "c", Kinds: document.String | document.Null}}}
	next := s.grownFor(report, &event.Columns{}, nil)
	var got []string
	for _, c := range next.Columns {
		got = append(got, fmt.Sprint(c.ID, " ", c.Name, " ", c.Type))
	}
	if want := []string{fmt.Sprint("2 a ", event.Int64), fmt.Sprint("3 b ", event.Type(0)), fmt.Sprint("4 c ", event.String)}; !slices.Equal(got, want) || next.Rest {
		t.Errorf("columns %q, want %q; rest %v", got, want, next.Rest)
	}
	if again := next.grownFor(document.Report{Unknown: report.Unknown[1:2]}, &event.Columns{}, nil); again != next {
		t.Error("a null has made another version")
	}
}
