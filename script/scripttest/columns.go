package scripttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

const passThrough = "function main(event) return event end"

// cells are values with the column they are meant for and what the row holds.
var cells = []struct {
	typ    event.Type
	value  string // JSON
	want   string // as cell prints it
	reason string // part of the error instead
}{
	{event.Bool, `true`, "1", ""},
	{event.Bool, `false`, "0", ""},
	{event.Bool, `1`, "", "bool"},
	{event.Bool, `"true"`, "", `"true"`},
	{event.Int32, `2147483647`, "2147483647", ""},
	{event.Int32, `-2147483648`, "-2147483648", ""},
	{event.Int32, `2147483648`, "", "out of range"},
	{event.Int32, `1.0`, "1", ""},
	{event.Int64, `9223372036854775807`, "9223372036854775807", ""},
	{event.Int64, `-9223372036854775808`, "-9223372036854775808", ""},
	{event.Int64, `9223372036854775808`, "", "out of range"},
	{event.Int64, `9007199254740993`, "9007199254740993", ""},
	{event.Int64, `1e3`, "1000", ""},
	{event.Int64, `-0`, "0", ""},
	{event.Int64, `1.5`, "", "whole number"},
	{event.Int64, `"7"`, "", "int64"},
	{event.Int64, `[7]`, "", "int64"},
	{event.Float64, `1.5`, "1.5", ""},
	{event.Float64, `1e2`, "100", ""},
	{event.Float64, `9007199254740993`, "9.007199254740992e+15", ""},
	{event.Float64, `1e400`, "", "out of range"},
	{event.Float64, `"1.5"`, "", "float64"},
	{event.Decimal, `1.50`, "1.50", ""},
	{event.Decimal, `12345678901234567890.123456789`, "12345678901234567890.123456789", ""},
	{event.Decimal, `"1.50"`, "", "decimal"},
	{event.String, `"a\u00e9\n"`, "aé\n", ""},
	{event.String, `""`, "", ""},
	{event.String, `5`, "", "string"},
	{event.String, `{"a":1}`, "", "string"},
	{event.Timestamp, `"1970-01-01T00:00:01Z"`, "1000000", ""},
	{event.Timestamp, `"2026-11-22T10:00:00.123456+02:00"`, "1795334400123456", ""},
	{event.Timestamp, `1795334400`, "1795334400000000", ""},
	{event.Timestamp, `1.5`, "1500000", ""},
	{event.Timestamp, `"yesterday"`, "", "RFC 3339"},
	{event.Timestamp, `1795334400000`, "", "milliseconds"},
	{event.Timestamp, `true`, "", "timestamp"},
	{event.JSON, `{ "a" : 1.0 }`, `{ "a" : 1.0 }`, ""},
	{event.JSON, `"text"`, `"text"`, ""},
	{event.JSON, `[1, 2]`, `[1, 2]`, ""},
}

func testColumns(t *testing.T, lang script.Language) {
	for _, c := range cells {
		t.Run(fmt.Sprintf("%s %s", c.typ, c.value), func(t *testing.T) {
			s := load(t, lang, passThrough, sinks([]event.Column{{Name: "col", Path: []string{"v"}, Type: c.typ}}))
			res := run(t, s, `{"v":`+c.value+`}`)
			if c.reason == "" {
				wantCell(t, res, 0, c.typ, c.want)
				return
			}
			wantMisfit(t, res, 0, 0, "col", c.reason)
		})
	}
	for _, typ := range []event.Type{event.Bool, event.Int32, event.Int64, event.Float64, event.Decimal, event.String, event.Timestamp, event.JSON} {
		t.Run(fmt.Sprintf("%s null", typ), func(t *testing.T) { testNulls(t, lang, typ) })
	}
	t.Run("written", func(t *testing.T) { testWrittenColumns(t, lang) })
	t.Run("misfit among several", func(t *testing.T) { testMisfitAmongSeveral(t, lang) })
	t.Run("two sinks", func(t *testing.T) { testTwoSinks(t, lang) })
}

// sinks are options for a sink with each of the columns.
func sinks(specs ...[]event.Column) script.Options {
	var all []script.Sink
	for i, spec := range specs {
		all = append(all, script.Sink{Name: fmt.Sprintf("sink%d", i), Columns: spec})
	}
	return script.Options{Sinks: all}
}

func testNulls(t *testing.T, lang script.Language, typ event.Type) {
	s := load(t, lang, passThrough, sinks([]event.Column{
		{Name: "col", Path: []string{"o", "v"}, Type: typ},
		{Name: "must", Path: []string{"must"}, Type: event.Int64, Required: true},
	}))
	// Where the path leads through something that is no object, nothing is there.
	res := run(t, s, `{"must":1}`, `{"must":1,"o":{"v":null}}`, `{"must":1,"o":5}`, `{"must":1,"o":[{"v":1}]}`, `{}`, `{"must":null}`)
	for row := range 4 {
		wantCell(t, res, row, typ, "null")
	}
	wantMisfit(t, res, 0, 4, "must", "required")
	wantMisfit(t, res, 1, 5, "must", "required")
}

// testWrittenColumns fills columns from what a script wrote.
func testWrittenColumns(t *testing.T, lang script.Language) {
	const text = `
function main(event)
  event.id = event.id + 2
  event.user.email = event.user.email:upper()
  event.gone = nil
  return {event, {id = 7, user = {email = "t"}, gone = json.null}}
end`
	s := load(t, lang, text, sinks([]event.Column{
		{Name: "id", Path: []string{"id"}, Type: event.Int64},
		{Name: "email", Path: []string{"user", "email"}, Type: event.String},
		{Name: "gone", Path: []string{"gone"}, Type: event.JSON},
	}))
	res := run(t, s, `{"id":9007199254740993,"user":{"email":"a@x"},"gone":1}`)
	columns := res.Outputs[0].Columns
	got := fmt.Sprint(rowText(columns, 0), rowText(columns, 1))
	if want := "[9007199254740995 A@X null][7 t null]"; got != want {
		t.Errorf("rows are %s, want %s", got, want)
	}
}

func testMisfitAmongSeveral(t *testing.T, lang script.Language) {
	const text = `function main(event) return {{n = 1}, {n = "two"}, {n = 3}} end`
	s := load(t, lang, text, sinks([]event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int32}}))
	res := run(t, s, `{"a":1}`, `{"a":2}`)
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"n":1} 0 {"n":3} 1 {"n":1} 1 {"n":3}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	for i := range 2 {
		wantMisfit(t, res, i, i, "n", `"two"`)
		if res.Dead[i].Number != 1 {
			t.Errorf("dead letter is about output %d of its event, want 1", res.Dead[i].Number)
		}
	}
}

// testTwoSinks: each sink gets every document, and one asks for columns. A document
// that does not fit them goes to the other sink.
func testTwoSinks(t *testing.T, lang script.Language) {
	s := load(t, lang, passThrough, sinks(nil, []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int32}}))
	docs := []string{`{"n":1}`, `{"n":"x"}`, `{"n":3}`}
	in, res := batch(docs...), &event.Result{Outputs: make([]event.Output, 2)}
	if err := s.Run(t.Context(), in, res); err != nil {
		t.Fatal(err)
	}
	checkResult(t, s, docs, in, res)
	for i, want := range []string{`0 {"n":1} 1 {"n":"x"} 2 {"n":3}`, `0 {"n":1} 2 {"n":3}`} {
		if got := strings.Join(outLines(&res.Outputs[i]), " "); got != want {
			t.Errorf("output %d is %s, want %s", i, got, want)
		}
	}
	if res.Outputs[0].Columns != nil {
		t.Error("the sink that asked for no columns got some")
	}
	if columns := res.Outputs[1].Columns; columns == nil || columns.Rows != 2 {
		t.Errorf("columns are %+v, want 2 rows", columns)
	}
	wantMisfit(t, res, 0, 1, "n", `"x"`)
	if dead := &res.Dead[0]; dead.Sink != "sink1" || dead.Number != 0 {
		t.Errorf("dead letter is about row %d in sink %q, want 0 in sink1", dead.Number, dead.Sink)
	}
}

func wantCell(t *testing.T, res *event.Result, row int, typ event.Type, want string) {
	t.Helper()
	columns := res.Outputs[0].Columns
	if columns == nil || columns.Rows != res.Outputs[0].Len() || columns.Rows <= row {
		t.Fatalf("columns are %+v beside %d documents, dead %v", columns, res.Outputs[0].Len(), res.Dead)
	}
	if got := cell(columns, 0, row); got != want {
		t.Errorf("row %d holds %s, want %s as %s", row, got, want, typ)
	}
}

func wantMisfit(t *testing.T, res *event.Result, i, index int, parts ...string) {
	t.Helper()
	if i >= len(res.Dead) {
		t.Fatalf("%d dead letters, want one more", len(res.Dead))
	}
	dead := &res.Dead[i]
	if dead.Stage != "column" || dead.Position != firstPosition+uint64(index) {
		t.Errorf("dead letter is %q, want event %d and stage column", dead, index)
	}
	for _, part := range parts {
		if !strings.Contains(dead.Error, part) {
			t.Errorf("dead letter says %q, which lacks %q", dead.Error, part)
		}
	}
}

func rowText(c *event.Columns, row int) string {
	texts := make([]string, len(c.Vectors))
	for i := range c.Vectors {
		texts[i] = cell(c, i, row)
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// cell prints a value of a column.
func cell(c *event.Columns, column, row int) string {
	v := &c.Vectors[column]
	if v.Null[row] != 0 {
		return "null"
	}
	switch c.Spec[column].Type {
	case event.Bool, event.Int32, event.Int64, event.Timestamp:
		return fmt.Sprint(v.Ints[row])
	case event.Float64:
		return fmt.Sprint(v.Floats[row])
	}
	return string(v.Text(row))
}
