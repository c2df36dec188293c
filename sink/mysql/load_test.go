package mysql

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/table"
)

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

// TestWaysIntoTheTableAgree lands the same rows by text, by parameters, by
// arrays of them and by LOAD DATA, and compares the tables byte for byte.
func TestWaysIntoTheTableAgree(t *testing.T) {
	columns := every()
	columns[5].SQL = "VARCHAR(60)"
	columns = append(columns, Column{Name: "raw", Field: "s", Type: Type(event.String), SQL: "LONGBLOB"},
		Column{Name: "latin", Field: "l", Type: Type(event.Int64), SQL: "VARCHAR(30) CHARACTER SET latin1"},
		Column{Name: "coarse", Field: "t", Type: Type(event.Timestamp), SQL: "DATETIME(0)"},
		Column{Name: "single", Field: "i", Type: Type(event.Int32), SQL: "FLOAT"},
		Column{Name: "real", Field: "f", Type: Type(event.Float64), SQL: "FLOAT"},
		Column{Name: "exact", Field: "f", Type: Type(event.Float64), SQL: "DECIMAL(65,20)"},
		Column{Name: "spelled", Field: "t", Type: Type(event.Timestamp), SQL: "VARCHAR(30)"})
	dump := func(method Method, rows [][]any, prepared bool) []string {
		t.Helper()
		g := newTarget(t, columns...)
		g.config.Method = method
		w := g.open()
		r := newRows(w)
		for _, row := range rows {
			r.Add(append(slices.Clone(row), row[5], row[2], row[6], row[1], modest(row[3]), modest(row[3]), row[6])...)
		}
		if !prepared {
			for i := range rows {
				w.mustWrite(t, r, i)
			}
		} else {
			r.write(t, w)
		}
		if w.inserts || w.mistaken > 0 {
			t.Errorf("rows were refused one way, and taken the other")
		}
		return g.text("SELECT b, i, l, f, d, HEX(s), t, HEX(j), HEX(raw), latin, coarse, single, `real`, exact, spelled FROM events")
	}
	rows := odd()
	text := dump(Rows, rows, false)
	for name, other := range map[string][]string{"parameters": dump(Rows, rows, true), "arrays": dump(Bulk, rows, true), "LOAD DATA": dump(Load, rows, true)} {
		if len(other) != len(text) {
			t.Fatalf("%d rows by %s, %d by text", len(other), name, len(text))
		}
		for i := range text {
			if other[i] != text[i] {
				t.Errorf("row %d by %s\n%s\nby text\n%s", i, name, other[i], text[i])
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

// mustWrite writes row i alone: too few to be parameters.
func (w writer) mustWrite(t *testing.T, r *rows, i int) {
	t.Helper()
	one := *r.out
	one.Range = event.Range{First: uint64(i), Count: 1}
	b := &batch{columns: one.Columns, rows: []int{i}}
	s, err := w.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.keep(s)
	if err := w.insert(t.Context(), s, b, event.Ranges{one.Range}, byRows); err != nil {
		t.Fatal(err)
	}
}

// TestNeverBendsAValue writes rows of which LOAD DATA changes or skips one without
// an error: none may land, and the one must be named.
func TestNeverBendsAValue(t *testing.T) {
	for _, method := range []Method{Rows, Bulk, Load} {
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
		refusal, ok := errors.AsType[*sink.RowErrors](err)
		if !ok || len(refusal.Rows) != 1 || refusal.Rows[0].Row != 7 {
			t.Errorf("column %d with %v: writing returned %v", test.column, test.value, err)
		}
	}
	if landed := g.text("SELECT * FROM events"); len(landed) != 0 {
		t.Errorf("landed %v", landed)
	}
	if w.inserts {
		t.Errorf("%s is mistrusted because of bad rows", method)
	}
}

// TestMistrustedLoads gives up loading where INSERT takes what LOAD DATA warns of.
func TestMistrustedLoads(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.config.Method = Load
	w := g.open()
	w.plan.load = strings.Replace(w.plan.load, ", `name`", "", 1) // the server warns of a field too many
	for i := range uint64(mistrust + 2) {
		if err := w.Write(t.Context(), span(w, i*100, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if !w.inserts {
		t.Error("loads are tried for ever")
	}
	g.once(100 * (mistrust + 2))
}

// TestLoadIsForbiddenLater lets an administrator turn LOAD DATA LOCAL off while
// a writer uses it.
func TestLoadIsForbiddenLater(t *testing.T) {
	g := newTarget(t, named(20)...)
	g.config.Method = Load
	w := g.open()
	if err := w.Write(t.Context(), span(w, 0, 100)); err != nil {
		t.Fatal(err)
	}
	g.exec("SET GLOBAL local_infile = 0")
	defer g.exec("SET GLOBAL local_infile = 1")
	for i := range uint64(2) {
		if err := w.Write(t.Context(), span(w, 100+i*100, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if !w.inserts {
		t.Error("loads are tried for ever")
	}
	g.once(300)
	g.refusesOpen("local_infile is off", "SET GLOBAL local_infile = 1")
}

func TestChoice(t *testing.T) {
	counted := []found{{name: "pk", autoIncrement: true}, {name: "id"}}
	plain := []found{{name: "id"}}
	spelled := []found{{name: "id"}, {name: "score", kind: "varchar", full: "varchar(10)"}}
	tests := []struct {
		name    string
		mode    table.Mode
		method  Method
		server  settled
		columns []found
		way     way
		why     string
	}{
		{"arrays", table.Insert, Auto, settled{localInfile: true, lockMode: 2}, plain, byArrays, "takes arrays"},
		{"arrays of keys", table.Upsert, Auto, settled{}, spelled, byArrays, "takes arrays"},
		{"arrays as told", table.Ignore, Bulk, settled{}, plain, byArrays, "method is bulk"},
		{"lock mode 1", table.Insert, Auto, settled{noArrays: "none", localInfile: true, lockMode: 1}, counted, byRows, "only with 2"},
		{"lock mode 2", table.Insert, Auto, settled{noArrays: "none", localInfile: true, lockMode: 2}, counted, byLoad, "is 2"},
		{"no counter", table.Insert, Auto, settled{noArrays: "none", localInfile: true, lockMode: 1}, plain, byLoad, "no AUTO_INCREMENT"},
		{"off", table.Insert, Auto, settled{noArrays: "none", lockMode: 2}, plain, byRows, "local_infile is off"},
		{"as told", table.Insert, Load, settled{localInfile: true, lockMode: 1}, counted, byLoad, "method is load"},
		{"as told otherwise", table.Insert, Rows, settled{localInfile: true, lockMode: 2}, counted, byRows, "method is insert"},
		{"number as text", table.Insert, Auto, settled{noArrays: "none", localInfile: true, lockMode: 2}, spelled, byRows, "spell numbers otherwise"},
		{"upsert", table.Upsert, Auto, settled{noArrays: "none", localInfile: true, lockMode: 2}, plain, byRows, "mode is upsert"},
	}
	for _, test := range tests {
		c := Config{Mode: test.mode, Method: test.method, Columns: []Column{{Name: "score", Type: Type(event.Float64)}}}
		got, err := c.choose(test.server, test.columns)
		if err != nil || got.way != test.way || !strings.Contains(got.why, test.why) {
			t.Errorf("%s: %v because %q, %v", test.name, got.way, got.why, err)
		}
	}
}
