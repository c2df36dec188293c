package document_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/pure"
)

func batch(docs ...string) ([]byte, []uint32) {
	var b event.Batch
	for _, d := range docs {
		b.Append([]byte(d))
	}
	return b.Data, b.Ends
}

func one(t event.Type) []event.Column {
	return []event.Column{{Name: "v", Path: []string{"v"}, Type: t}}
}

// cell returns the value of row r according to the type.
func cell(cols *event.Columns, r int) any {
	v := &cols.Vectors[0]
	if v.Null[r] == 1 {
		return nil
	}
	switch cols.Spec[0].Type {
	case event.Float64:
		return v.Floats[r]
	case event.Decimal, event.String, event.JSON:
		return string(v.Text(r))
	}
	return v.Ints[r]
}

func TestExtractConverts(t *testing.T) {
	const refused = "refused"
	for _, tt := range []struct {
		typ   event.Type
		value string
		want  any // refused: not a value of that type
		why   string
	}{
		{event.Bool, `true`, int64(1), ""},
		{event.Bool, `false`, int64(0), ""},
		{event.Bool, `1`, refused, "column v wants bool, got 1"},
		{event.Bool, `null`, nil, ""},
		{event.Int32, `2147483647`, int64(2147483647), ""},
		{event.Int32, `2147483648`, refused, "out of range"},
		{event.Int32, `-2147483648`, int64(-2147483648), ""},
		{event.Int64, `-0`, int64(0), ""},
		{event.Int64, `1e3`, int64(1000), ""},
		{event.Int64, `1.0`, int64(1), ""},
		{event.Int64, `1200e-2`, int64(12), ""},
		{event.Int64, `1.5`, refused, "not a whole number"},
		{event.Int64, `9223372036854775807`, int64(9223372036854775807), ""},
		{event.Int64, `-9223372036854775808`, int64(-9223372036854775808), ""},
		{event.Int64, `9223372036854775808`, refused, "out of range"},
		{event.Int64, `1e400`, refused, "out of range"},
		{event.Int64, `0e999999999999`, int64(0), ""},
		{event.Int64, `"12"`, refused, `column v wants int64, got "12"`},
		{event.Int64, `"abc"`, refused, `column v wants int64, got "abc"`},
		{event.Float64, `1`, 1.0, ""},
		{event.Float64, `0.1`, 0.1, ""},
		{event.Float64, `-1.7976931348623157e308`, -1.7976931348623157e308, ""},
		{event.Float64, `5e-324`, 5e-324, ""},
		{event.Float64, `123456789012345678901234567890`, 123456789012345678901234567890.0, ""},
		{event.Float64, `1e400`, refused, "out of range"},
		{event.Float64, `"1"`, refused, "wants float64"},
		{event.Decimal, `1.10`, "1.10", ""},
		{event.Decimal, `"1.10"`, refused, "wants decimal"},
		{event.String, `"a\u00e9\n\ud83d\ude00"`, "aé\n😀", ""},
		{event.String, `"\ud800x"`, "\uFFFDx", ""},
		{event.String, `""`, "", ""},
		{event.String, `12`, refused, "wants string"},
		{event.JSON, `{"a": [1, 2]}`, `{"a": [1, 2]}`, ""},
		{event.JSON, `"x"`, `"x"`, ""},
		{event.Timestamp, `"2026-11-22T00:00:00Z"`, int64(1795305600000000), ""},
		{event.Timestamp, `"2026-11-22T01:00:00.123456789+01:00"`, int64(1795305600123456), ""},
		{event.Timestamp, `"2026-11-22 00:00:00.5"`, int64(1795305600500000), ""},
		{event.Timestamp, `"1969-12-31T23:59:59Z"`, int64(-1000000), ""},
		{event.Timestamp, `"2026-02-29T00:00:00Z"`, refused, "RFC 3339"},
		{event.Timestamp, `"2026-11-22T00:00:00"`, refused, "RFC 3339"},
		{event.Timestamp, `"0001-01-01T00:00:00+01:00"`, refused, "RFC 3339"},
		{event.Timestamp, `1795305600`, int64(1795305600000000), ""},
		{event.Timestamp, `1795305600.1234567`, int64(1795305600123456), ""},
		{event.Timestamp, `-1`, int64(-1000000), ""},
		{event.Timestamp, `1e-9`, int64(0), ""},
		{event.Timestamp, `1795305600000`, refused, "milliseconds"},
		{event.Timestamp, `true`, refused, "wants timestamp"},
	} {
		data, ends := batch(`{"v":`+tt.value+`}`, `{}`)
		x := document.NewExtractor(one(tt.typ))
		var cols event.Columns
		r, err := x.Extract(data, ends, &cols)
		if err != nil {
			t.Fatal(err)
		}
		name := tt.typ.String() + " from " + tt.value
		if got := cell(&cols, 1); got != nil {
			t.Errorf("%s: missing became %v", name, got)
		}
		if tt.want == refused {
			if len(r.Rejected) != 1 || !strings.Contains(r.Rejected[0].Reason, tt.why) || cell(&cols, 0) != nil {
				t.Errorf("%s: got %v, %+v; want a refusal with %q", name, cell(&cols, 0), r.Rejected, tt.why)
			}
			continue
		}
		if got := cell(&cols, 0); got != tt.want || len(r.Rejected) > 0 {
			t.Errorf("%s: got %v, %+v; want %v", name, got, r.Rejected, tt.want)
		}
	}
}

func TestUnits(t *testing.T) {
	const refused = math.MinInt64
	for _, test := range []struct {
		unit  event.Unit
		value string
		want  int64 // microseconds
		why   string
	}{
		{event.Milliseconds, `1795305600123`, 1795305600123000, ""},
		{event.Milliseconds, `1795305600123.4567`, 1795305600123456, ""},
		{event.Milliseconds, `-1`, -1000, ""},
		{event.Milliseconds, `1795305600123456`, refused, "microseconds"},
		{event.Milliseconds, `"1970-01-01T00:00:00.5Z"`, 500000, ""},
		{event.Microseconds, `1795305600123456`, 1795305600123456, ""},
		{event.Microseconds, `0.9`, 0, ""},
		{event.Microseconds, `1795305600123456789`, refused, "nanoseconds"},
		{event.Nanoseconds, `1795305600123456789`, 1795305600123456, ""},
		{event.Nanoseconds, `999`, 0, ""},
		{event.Nanoseconds, `-1001`, -1, ""},
		{event.Nanoseconds, `1.5e3`, 1, ""},
		{event.Nanoseconds, `253402300800000000000`, refused, "nanoseconds since 1970"},
		{event.TextOnly, `1795305600`, refused, "declare the unit"},
		{event.TextOnly, `"1970-01-01T00:00:01Z"`, 1000000, ""},
	} {
		spec := []event.Column{{Name: "v", Path: []string{"v"}, Type: event.Timestamp, Unit: test.unit}}
		data, ends := batch(`{"v":` + test.value + `}`)
		for _, x := range []interface {
			Extract([]byte, []uint32, *event.Columns) (document.Report, error)
		}{document.NewExtractor(spec), pure.NewExtractor(spec)} {
			var cols event.Columns
			r, err := x.Extract(data, ends, &cols)
			if err != nil {
				t.Fatal(err)
			}
			switch got := cell(&cols, 0); {
			case test.want == refused && (len(r.Rejected) != 1 || !strings.Contains(r.Rejected[0].Reason, test.why)):
				t.Errorf("%T: %s of %s becomes %v, %+v; want a refusal with %q", x, test.value, test.unit, got, r.Rejected, test.why)
			case test.want != refused && got != test.want:
				t.Errorf("%T: %s of %s becomes %v, %+v; want %d", x, test.value, test.unit, got, r.Rejected, test.want)
			}
		}
	}
}

// TestUnitsOfNanoseconds checks the digits beyond microseconds.
func TestUnitsOfNanoseconds(t *testing.T) {
	for _, test := range []struct {
		unit  event.Unit
		value string
		want  any
	}{
		{event.Seconds, `1795305600.123456789`, int64(1795305600123456789)}, {event.Milliseconds, `1795305600123.456789`, int64(1795305600123456789)},
		{event.Microseconds, `1795305600123456.789`, int64(1795305600123456789)}, {event.Nanoseconds, `1795305600123456789`, int64(1795305600123456789)},
		{event.Nanoseconds, `-1`, int64(-1)}, {event.Nanoseconds, `1.5e3`, int64(1500)}, {event.Nanoseconds, `0.9`, int64(0)},
		{event.Nanoseconds, `9223372036854775807`, nil}, {event.Nanoseconds, `9223372036854775808`, nil}, {event.TextOnly, `1`, nil},
	} {
		spec := []event.Column{{Name: "v", Path: []string{"v"}, Type: event.TimestampNS, Unit: test.unit}}
		data, ends := batch(`{"v":` + test.value + `}`)
		for _, x := range []interface {
			Extract([]byte, []uint32, *event.Columns) (document.Report, error)
		}{document.NewExtractor(spec), pure.NewExtractor(spec)} {
			var cols event.Columns
			r, err := x.Extract(data, ends, &cols)
			if err != nil {
				t.Fatal(err)
			}
			if got := cell(&cols, 0); got != test.want || (len(r.Rejected) > 0) != (test.want == nil) {
				t.Errorf("%T: %s of %s becomes %v, %+v; want %v", x, test.value, test.unit, got, r.Rejected, test.want)
			}
		}
	}
}

func TestExtractReports(t *testing.T) {
	spec := []event.Column{
		{Name: "id", Path: []string{"id"}, Type: event.Int64, Required: true},
		{Name: "mail", Path: []string{"user", "email"}, Type: event.String},
	}
	data, ends := batch(
		`{"id":1,"user":{"email":"a@b.c"},"new":1}`,
		`{"new":2.5,"user":{"email":7}}`,
		`not json`,
		`{"id":3,"id":4,"user":3,"n\u0065w":"x","other":null}`,
	)
	x := document.NewExtractor(spec)
	x.ReportUnknown()
	var cols event.Columns
	for range 2 { // the second run reuses the cache of the first
		cols.Reset()
		got, err := x.Extract(data, ends, &cols)
		if err != nil {
			t.Fatal(err)
		}
		want := document.Report{
			Rejected: []document.Rejected{
				{Row: 1, Column: 0, Reason: "column id is required, but id is missing or null"},
				{Row: 1, Column: 1, Kind: document.Int, Value: "7", Reason: "column mail wants string, got 7"},
				{Row: 2, Column: -1, Reason: "not a JSON object: an event must start with { (at byte 0)"},
			},
			Unknown: []document.Field{
				{Name: "new", Kinds: document.Int | document.Float | document.String},
				{Name: "other", Kinds: document.Null},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		wantCols := event.Columns{Spec: spec, Rows: 4, Vectors: []event.Vector{
			{Null: []uint8{0, 1, 1, 0}, Ints: []int64{1, 0, 0, 4}},
			{Null: []uint8{0, 1, 1, 1}, Bytes: []byte("a@b.c"), Ends: []uint32{5, 5, 5, 5}},
		}}
		if diff := cmp.Diff(wantCols, cols); diff != "" {
			t.Error(diff)
		}
	}
}

// TestExtractMore adds rows after others.
func TestExtractMore(t *testing.T) {
	spec := append(one(event.Int64), event.Column{Name: "s", Path: []string{"s"}, Type: event.String})
	docs := []string{`{"v":1,"s":"a"}`, `{"v":2,"s":"bc"}`, `{"v":"x"}`, `7`, `{"s":"d","v":3,"more":true}`}
	data, ends := batch(docs...)
	var all event.Columns
	want, err := document.NewExtractor(spec).Extract(data, ends, &all)
	if err != nil || want.Unknown != nil {
		t.Fatalf("%v, unknown %v; want no unknown fields unless asked", err, want.Unknown)
	}
	x := document.NewExtractor(spec)
	var cols event.Columns
	var rejected []document.Rejected
	for _, part := range [][]string{docs[:1], nil, docs[1:3], docs[3:]} {
		data, ends := batch(part...)
		found, err := x.Extract(data, ends, &cols)
		if err != nil {
			t.Fatal(err)
		}
		rejected = append(rejected, found.Rejected...)
	}
	if diff := cmp.Diff(all, cols); diff != "" {
		t.Errorf("columns (-at once +in parts):\n%s", diff)
	}
	if diff := cmp.Diff(want.Rejected, rejected); diff != "" {
		t.Errorf("rejected (-at once +in parts):\n%s", diff)
	}
}

// TestNamesAreForgotten extracts columns again after thousands of names that belong to no column
// and are not kept.
func TestNamesAreForgotten(t *testing.T) {
	for _, columns := range []int{1, 31, 32, 33, 64, 200} {
		var spec []event.Column
		few := `{"other":true`
		for i := range columns {
			name := fmt.Sprint("column", i)
			spec = append(spec, event.Column{Name: name, Path: []string{name}, Type: event.Int64})
			few += fmt.Sprintf(`,%q:%d`, name, i)
		}
		few += "}"
		many := `{"column0":7`
		for i := range 5000 {
			many += fmt.Sprintf(`,"k%d":0`, i)
		}
		many += "}"
		x := document.NewExtractor(spec)
		x.ReportUnknown()
		for _, doc := range []string{few, many, few, few, many, few} {
			data, ends := batch(doc)
			var cols event.Columns
			found, err := x.Extract(data, ends, &cols)
			if err != nil || len(found.Rejected) > 0 {
				t.Fatal(err, found.Rejected)
			}
			want := 1
			if doc == many {
				want = 5000
			}
			if len(found.Unknown) != want {
				t.Errorf("%d columns: %d unknown fields, want %d", columns, len(found.Unknown), want)
			}
			for i := range cols.Vectors {
				if v := &cols.Vectors[i]; doc == few && (v.Null[0] != 0 || v.Ints[0] != int64(i)) {
					t.Errorf("%d columns: column %d has %d, null %d", columns, i, v.Ints[0], v.Null[0])
				}
			}
		}
	}
}

func TestExtractNothing(t *testing.T) {
	x := document.NewExtractor(one(event.Int64))
	var cols event.Columns
	if r, err := x.Extract(nil, nil, &cols); err != nil || r.Rejected != nil || cols.Rows != 0 {
		t.Errorf("got %+v, %v, %d rows", r, err, cols.Rows)
	}
}
