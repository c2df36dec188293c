package mysql

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
)

// strings that escaping may get wrong
var awkward = []string{
	"", "'", "''", `\`, `\'`, `'\`, `\\`, "\x00", "a\x00b", "\n\r\t\x1a", `"`, "`", "%_", "--", "/*", ";", "\\0",
	"☾ 漢字 🚀", "'; DROP TABLE events; --", " trailing  ",
}

func TestTextSurvivesTheServer(t *testing.T) {
	g := newTarget(t,
		Column{Name: "id", Type: Type(event.Int64)},
		Column{Name: "text", Type: Type(event.String)},
		Column{Name: "bytes", Type: Type(event.String), SQL: "LONGBLOB"})
	w := g.open()
	texts := append([]string(nil), awkward...)
	for range 100 {
		texts = append(texts, rapid.StringMatching(`['\\\x00a-c☾]{0,40}`).Example(len(texts)))
	}
	rows := newRows(w)
	for i, text := range texts {
		rows.Add(int64(i), text, text)
	}
	rows.write(t, w)
	result, err := g.db.Query("SELECT id, text, bytes FROM events")
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	n := 0
	for ; result.Next(); n++ {
		var id int
		var text, bytes string
		if err := result.Scan(&id, &text, &bytes); err != nil {
			t.Fatal(err)
		}
		if text != texts[id] || bytes != texts[id] {
			t.Errorf("%q became %q and %q", texts[id], text, bytes)
		}
	}
	if n != len(texts) {
		t.Errorf("%d rows, want %d", n, len(texts))
	}
}

// odd are rows of every type with what escaping may get wrong, as add takes them.
func odd() [][]any {
	all := [][]any{
		{nil, nil, nil, nil, nil, nil, nil, nil},
		{int64(1), int64(math.MaxInt32), int64(math.MaxInt64), 0.1, "12345678901234567890123456789.123456789", "☾", int64(1700000000123456), `{"a":[1,"it's"]}`},
		{int64(0), int64(math.MinInt32), int64(math.MinInt64), -1.7976931348623157e308, "-1e-9", "", int64(-1), `"x"`},
		{int64(0), int64(0), int64(0), 5e-324, "1.5E3", "'\\", int64(-62135596800000000), "null"},
		{nil, nil, nil, 1e16, "-0", `\N`, int64(253402300799999999), `{"n":"a\nb\\"}`},
		{nil, nil, nil, math.MaxFloat32, "00", "NULL", int64(999_999), `{"a": 1.10}`},
	}
	texts := append([]string{`\N`, `\\N`, "N", "\tx\ty\n", "\r\n", "ends in \\", "\n", "\t", "\x1a\x00\b", "\\t", "a,b;c|d", `"q"`}, awkward...)
	for i, text := range texts {
		all = append(all, []any{nil, int64(i), nil, float64(i) / 3, nil, text, nil, fmt.Sprintf("%q", "t")})
	}
	for i := range 200 {
		all = append(all, []any{nil, int64(i), nil, nil, nil, rapid.StringMatching(`['\\\x00\t\r\nNnt0Z☾🚀]{0,30}`).Example(i), nil, nil})
	}
	return all
}

// TestMethodsAgree inserts the same rows as text, by parameters and by arrays of
// them, over each kind of connection, and compares the tables byte for byte.
func TestMethodsAgree(t *testing.T) {
	columns := every()
	columns[5].SQL = "VARCHAR(60)"
	columns = append(columns, Column{Name: "raw", Field: "s", Type: Type(event.String), SQL: "LONGBLOB"},
		Column{Name: "latin", Field: "l", Type: Type(event.Int64), SQL: "VARCHAR(30) CHARACTER SET latin1"},
		Column{Name: "coarse", Field: "t", Type: Type(event.Timestamp), SQL: "DATETIME(0)"},
		Column{Name: "single", Field: "i", Type: Type(event.Int32), SQL: "FLOAT"},
		Column{Name: "real", Field: "f", Type: Type(event.Float64), SQL: "FLOAT"},
		Column{Name: "exact", Field: "f", Type: Type(event.Float64), SQL: "DECIMAL(65,20)"},
		Column{Name: "spelled", Field: "t", Type: Type(event.Timestamp), SQL: "VARCHAR(30)"})
	dump := func(link link, method Method, rows [][]any, oneByOne bool) []string {
		t.Helper()
		g := newTarget(t, columns...)
		g.config.Method, g.config.Params = method, link.params
		w := g.open()
		r := newRows(w)
		for _, row := range rows {
			r.Add(append(slices.Clone(row), row[5], row[2], row[6], row[1], modest(row[3]), modest(row[3]), row[6])...)
		}
		if oneByOne { // too few to be parameters
			for i := range rows {
				w.insertOne(t, r, i)
			}
		} else {
			r.write(t, w)
		}
		if w.bulkDisabled || w.wrongRejections > 0 {
			t.Errorf("rows were rejected by one method, and accepted by another")
		}
		return g.text("SELECT b, i, l, f, d, HEX(s), t, HEX(j), HEX(raw), latin, coarse, single, `real`, exact, spelled FROM events")
	}
	rows := odd()
	text := dump(links[0], Rows, rows, true)
	for _, link := range links {
		for _, method := range []Method{Rows, Bulk} {
			other := dump(link, method, rows, false)
			if len(other) != len(text) {
				t.Fatalf("%d rows by %s over %s, %d by text", len(other), method, link.name, len(text))
			}
			for i := range text {
				if other[i] != text[i] {
					t.Errorf("row %d by %s over %s\n%s\nby text\n%s", i, method, link.name, other[i], text[i])
				}
			}
		}
	}
}

// modest keeps a number within what every column of numbers takes.
func modest(value any) any {
	if f, ok := value.(float64); ok && math.Abs(f) > 1e16 {
		return f / math.MaxFloat64
	}
	return value
}

// insertOne writes row i alone.
func (w writer) insertOne(t *testing.T, r *rows, i int) {
	t.Helper()
	one := *r.out
	one.Range = event.Range{First: uint64(i), Count: 1}
	b := &batch{columns: one.Columns, rows: []int{i}, ranges: event.Ranges{one.Range}, formats: newFormats(w.partition.sink.columns, &w.plan)}
	s, err := w.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.release(s)
	if err := w.transact(t.Context(), s, b, Rows); err != nil {
		t.Fatal(err)
	}
}

// TestNeverBendsAValue writes batches with one row that does not fit: no row may be
// written, and the bad one must be named.
func TestNeverBendsAValue(t *testing.T) {
	for _, method := range []Method{Rows, Bulk} {
		t.Run(string(method), func(t *testing.T) { neverBends(t, method) })
	}
}

func neverBends(t *testing.T, method Method) {
	const table = `CREATE TABLE events (b TINYINT, i SMALLINT, l BIGINT NOT NULL, f FLOAT, d DECIMAL(5,2), s VARCHAR(10) CHARACTER SET latin1,
		t TIMESTAMP NULL, j JSON, kind ENUM('a','b'), UNIQUE KEY only_once (l), CHECK (l <> 13))`
	columns := append(every(), Column{Name: "kind", Type: Type(event.String)})
	good := []any{int64(1), int64(1), int64(1), 1.5, "1.5", "text", int64(1_000_000), "{}", "a"}
	g := newTarget(t, columns...)
	g.exec(table)
	g.config.Method = method
	w := g.open()
	bent := []struct {
		column int
		value  any
	}{
		{0, int64(300)}, {1, int64(40000)}, {2, nil}, {2, int64(13)}, {2, int64(0)}, {3, 1e300}, {4, "1234.5"}, {4, "1.001"},
		{5, "eleven char"}, {5, "☾"}, {6, int64(-1_000_000)}, {6, int64(253402300800000000)}, {7, "{"}, {8, "c"}, {8, ""},
	}
	for n, test := range bent {
		r := newRows(w)
		for i := range 20 {
			row := slices.Clone(good)
			row[2] = int64(100 + i)
			if i == 0 {
				row[2] = int64(0)
			}
			if i == 7 {
				row[test.column] = test.value
			}
			r.Add(row...)
		}
		r.out.Range.First = uint64(100 * n)
		err := w.Write(t.Context(), r.out)
		rejected, ok := errors.AsType[*sink.RowErrors](err)
		if !ok || len(rejected.Rows) != 1 || rejected.Rows[0].Row != 7 {
			t.Errorf("column %d with %v: writing returned %v", test.column, test.value, err)
		}
	}
	if written := g.text("SELECT * FROM events"); len(written) != 0 {
		t.Errorf("the table has %v", written)
	}
	if w.bulkDisabled {
		t.Errorf("%s is disabled because of bad rows", method)
	}
}
