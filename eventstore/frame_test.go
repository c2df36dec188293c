//go:build linux && cgo

package eventstore

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/document"
)

// TestSelectRows copies runs of rows in columns of each kind.
func TestSelectRows(t *testing.T) {
	words := []string{"zero", "", "two", "three", "fourth"}
	all := &event.Columns{Rows: len(words), Spec: make([]event.Column, 4), Vectors: make([]event.Vector, 4)}
	for i, word := range words {
		all.Vectors[0].Ints = append(all.Vectors[0].Ints, int64(10+i))
		all.Vectors[1].Floats = append(all.Vectors[1].Floats, float64(i)/2)
		for v := 2; v < 4; v++ {
			all.Vectors[v].Bytes = append(all.Vectors[v].Bytes, word...)
			all.Vectors[v].Ends = append(all.Vectors[v].Ends, uint32(len(all.Vectors[v].Bytes)))
		}
		for v := range all.Vectors {
			all.Vectors[v].Null = append(all.Vectors[v].Null, uint8((i+v)%2))
		}
	}
	for _, runs := range []rowRuns{nil, {{0, 5}}, {{0, 1}}, {{4, 5}}, {{1, 2}}, {{1, 3}, {4, 5}}, {{0, 2}, {3, 5}}} {
		got := selectRows(all, runs)
		at := 0
		for _, run := range runs {
			for i := run.first; i < run.end; i, at = i+1, at+1 {
				for v := range all.Vectors {
					from, to := &all.Vectors[v], &got.Vectors[v]
					same := to.Null[at] == from.Null[i]
					switch {
					case v == 0:
						same = same && to.Ints[at] == from.Ints[i]
					case v == 1:
						same = same && to.Floats[at] == from.Floats[i]
					default:
						same = same && string(to.Text(at)) == words[i]
					}
					if !same {
						t.Errorf("rows %v: row %d of column %d is not row %d of all", runs, at, v, i)
					}
				}
			}
		}
		if got.Rows != at || got.Rows != runs.count() || len(got.Vectors[0].Ints) != at || len(got.Vectors[1].Floats) != at || len(got.Vectors[2].Ends) != at {
			t.Errorf("rows %v: %d rows, want %d", runs, got.Rows, at)
		}
	}
}

func TestTimeBounds(t *testing.T) {
	columns := &event.Columns{
		Spec:    []event.Column{{Name: "a", Type: event.Int64}, {Name: "t", Type: event.Timestamp}, {Name: "ns", Type: event.TimestampNS}},
		Vectors: []event.Vector{{Ints: []int64{9, 9}}, {Ints: []int64{5, -3}}, {Ints: []int64{-1, 1999}}},
	}
	for column, want := range map[string][2]int64{"": {}, "other": {}, "t": {-3, 5}, "ns": {-1, 1}} {
		if least, greatest := new(buffer).timeBounds(column, columns); want != [2]int64{least, greatest} {
			t.Errorf("of %q: %d to %d, want %v", column, least, greatest, want)
		}
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
		t.Errorf("%d columns, rest %v", len(s.Columns), s.Rest)
	}
	s.add("one more", document.Null)
	if len(s.Columns) != columnsMax || s.Rest {
		t.Errorf("after a null: %d columns, rest %v", len(s.Columns), s.Rest)
	}
	s.add("one more", document.Int)
	if len(s.Columns) != columnsMax || !s.Rest {
		t.Errorf("after another: %d columns, rest %v", len(s.Columns), s.Rest)
	}
	for length, want := range map[int]bool{keyMax: true, keyMax + 1: false} {
		s := newSchema()
		s.add(strings.Repeat("k", length), document.Int)
		if (len(s.Columns) == 1) != want || s.Rest == want {
			t.Errorf("a key of %d bytes: %d columns, rest %v", length, len(s.Columns), s.Rest)
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

// TestAppendFields gathers the fields without a column.
func TestAppendFields(t *testing.T) {
	wanted := map[string]bool{"a": true, "b\"": true}
	for doc, want := range map[string]string{
		`{}`: "", `{"c":1}`: "", `{"a":1}`: `{"a":1}`, `{"c":1,"a": [1, 2] ,"b\"":"x"}`: `{"a":[1, 2],"b\"":"x"}`, `{"a":1,"a":2}`: `{"a":1,"a":2}`,
		`{"a":1.10}`: `{"a":1.10}`, `{"c":{"a":1}}`: "",
	} {
		got, err := appendFields([]byte("before"), []byte(doc), wanted)
		if err != nil || string(got) != "before"+want {
			t.Errorf("%s: %s, %v; want %s", doc, got, err, want)
		}
	}
	for _, doc := range []string{"", `{"a"`, `{"a":`, `{1:2}`} {
		if got, err := appendFields(nil, []byte(doc), wanted); err == nil {
			t.Errorf("%q: %q", doc, got)
		}
	}
}

// TestEncodeFails writes results to a writer that fails, and in an unknown format.
func TestEncodeFails(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, format := range Formats() {
		run := func() *Rows {
			rows, err := s.Execute(t.Context(), Statement{SQL: `SELECT i, 'a text of some length' AS s FROM range(1000) t(i)`, Format: format})
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		var whole bytes.Buffer
		rows := run()
		if err := output.Write(&whole, rows); err != nil {
			t.Fatal(err)
		}
		rows.Close()
		for _, room := range []int{0, 1, whole.Len() / 2, whole.Len() - 1} {
			rows := run()
			if err := output.Write(&failingWriter{left: room}, rows); !errors.Is(err, errNoRoom) {
				t.Errorf("%s with room for %d of %d bytes: %v", format, room, whole.Len(), err)
			}
			rows.Close()
		}
	}
	rows, err := s.Execute(t.Context(), Statement{SQL: `SELECT 1`})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if err := output.Write(new(bytes.Buffer), rows); err == nil || !strings.Contains(err.Error(), `unknown format ""`) {
		t.Errorf("without a format: %v", err)
	}
}

func TestText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC)
	for _, test := range []struct {
		value      any
		text, json string
	}{
		{nil, "", "null"}, {true, "true", "true"}, {int64(-7), "-7", "-7"}, {uint64(1 << 63), "9223372036854775808", "9223372036854775808"},
		{float32(0.1), "0.1", "0.1"}, {0.1, "0.1", "0.1"}, {1e21, "1e+21", "1e+21"}, {math.Inf(1), "+Inf", "null"}, {math.NaN(), "NaN", "null"}, {float32(math.Inf(-1)), "-Inf", "null"},
		{"a\"<b>\n", "a\"<b>\n", `"a\"<b>\n"`}, {JSON(`{"a": 1}`), `{"a": 1}`, `{"a": 1}`}, {Number("1.50"), "1.50", "1.50"}, {[]byte{0, 255}, "AP8=", `"AP8="`},
		{at, "2026-01-02 03:04:05.00000006", `"2026-01-02T03:04:05.00000006Z"`},
		{[]any{}, "[]", "[]"}, {[]any{int64(1), "x", nil}, `[1,"x",null]`, `[1,"x",null]`},
		{Struct{}, "{}", "{}"}, {Struct{{Name: "a", Value: int64(1)}, {Name: "b", Value: []any{true}}}, `{"a":1,"b":[true]}`, `{"a":1,"b":[true]}`},
	} {
		if got := Text(test.value); got != test.text {
			t.Errorf("%#v as text is %s, want %s", test.value, got, test.text)
		}
		if got := string(protocol.AppendJSON(nil, test.value)); got != test.json {
			t.Errorf("%#v as JSON is %s, want %s", test.value, got, test.json)
		}
	}
}

func TestMergedFile(t *testing.T) {
	files := []*manifest.File{{Bytes: 10, Log: 3}, {Bytes: 20, Log: 7}, {Bytes: 30, Log: 5}}
	merged := mergedFile(manifest.New(), &manifest.Table{}, manifest.File{Name: "new", Rows: 9}, files, 8, 2)
	if diff := cmp.Diff(&manifest.File{Name: "new", Rows: 9, Segment: 8, Deleted: 2, Log: 7}, merged); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := lastDelete(&manifest.Table{Deletes: []*manifest.Delete{{Number: 2}, {Number: 9}, {Number: 4}}}); got != 9 {
		t.Errorf("the newest of the deletes 2, 9 and 4 is %d", got)
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
