package computed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/passthrough"
)

const firstPosition = 1000

// code makes a column of Lua.
func code(t *testing.T, name string, typ event.Type, text string) Column {
	t.Helper()
	loaded, err := lua.Language().Load(t.Context(), script.Code{Name: "column " + name, Text: []byte(text)},
		script.Options{Sinks: []script.Sink{{}}, ReturnsValue: true})
	if err != nil {
		t.Fatal(err)
	}
	return Column{Name: name, Type: typ, Code: loaded}
}

// behind puts columns behind a script, or behind none where text is empty.
func behind(t *testing.T, text string, sinks []script.Sink, columns ...Column) *Script {
	t.Helper()
	language := lua.Language()
	if text == "" {
		language = passthrough.Language()
	}
	inner, err := language.Load(t.Context(), script.Code{Name: "inner.lua", Text: []byte(text)}, script.Options{Sinks: sinks, SingleOutput: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return time.UnixMicro(1_795_334_400_123_450).In(time.FixedZone("", 3600)) }
	s := New("p", inner, columns, sinks, now)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var oneSink = []script.Sink{{}}

func run(t *testing.T, s script.Script, sinks int, docs ...string) *event.Result {
	t.Helper()
	in := &event.Batch{Partition: "part", Range: event.Range{First: firstPosition, Count: uint64(len(docs))}}
	for _, doc := range docs {
		in.Append([]byte(doc))
	}
	res := &event.Result{Outputs: make([]event.Output, sinks)}
	for range 2 { // what a run leaves behind must not show in the next
		if err := s.Run(t.Context(), in, res); err != nil {
			t.Fatal(err)
		}
	}
	if res.Ran != len(docs) {
		t.Errorf("ran %d of %d", res.Ran, len(docs))
	}
	return res
}

// outcome lists rows as INDEX DOCUMENT and dead letters as INDEX.NUMBER STAGE ERROR.
func outcome(res *event.Result) []string {
	var lines []string
	for i := range res.Outputs[0].Len() {
		lines = append(lines, fmt.Sprintf("%d %s", res.Outputs[0].From[i], res.Outputs[0].Doc(i)))
	}
	for _, d := range res.Dead {
		lines = append(lines, fmt.Sprintf("%d.%d %s %s", d.Position-firstPosition, d.Number, d.Stage, d.Error))
	}
	return lines
}

func wantOutcome(t *testing.T, res *event.Result, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, outcome(res)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTypes: what each type takes, and what it says to the rest.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		typ         event.Type
		value, want string // want of a refusal: what the error contains
		dead        bool
	}{
		{event.Bool, `row.a == 1`, `true`, false},
		{event.Bool, `1`, `column c wants bool, got 1`, true},
		{event.Int32, `2147483647`, `2147483647`, false},
		{event.Int32, `2147483648`, `column c wants int32, got 2147483648, which is out of range`, true},
		{event.Int64, `row.big`, `9007199254740993`, false},
		{event.Int64, `row.a / 2`, `column c wants int64, got 0.5, which is not a whole number`, true},
		{event.Int64, `"7"`, `column c wants int64, got "7"`, true},
		{event.Float64, `row.a / 2`, `0.5`, false},
		{event.Float64, `"0.5"`, `column c wants float64, got "0.5"`, true},
		{event.String, `"x" .. row.a`, `"x1"`, false},
		{event.String, `json.encode({a = 1})`, `"{\"a\":1}"`, false},
		{event.String, `5`, `column c wants string, got 5`, true},
		{event.String, `{}`, `column c wants string, got {}`, true},
		{event.Timestamp, `"2026-11-22T01:02:03Z"`, `"2026-11-22T01:02:03Z"`, false},
		{event.Timestamp, `1795334400`, `"2026-11-22T08:00:00.000000Z"`, false},
		{event.Timestamp, `1795334400.25`, `"2026-11-22T08:00:00.250000Z"`, false},
		{event.Timestamp, `1795334400000`, `it looks like milliseconds`, true},
		{event.Timestamp, `"yesterday"`, `column c wants timestamp, got "yesterday": use RFC 3339`, true},
		{event.JSON, `{a = {1, 2}}`, `{"a":[1,2]}`, false},
		{event.JSON, `json.encode({a = {1, 2}})`, `{"a":[1,2]}`, false},
		{event.JSON, `json.encode("text")`, `"text"`, false},
		{event.JSON, `" [1, 2] "`, `[1, 2]`, false},
		{event.JSON, `row.o`, `{ "k": 1.0 }`, false},
		{event.JSON, `"text"`, `column c wants json, got the string "text": return a table, or the result of json.encode`, true},
		{event.JSON, `"1,2"`, `column c wants json`, true},
		{event.JSON, `""`, `column c wants json`, true},
		{event.JSON, `5`, `5`, false},
	} {
		t.Run(fmt.Sprintf("%s %s", c.typ, c.value), func(t *testing.T) {
			const doc = `{"a":1,"big":9007199254740993,"o":{ "k": 1.0 }}`
			s := behind(t, "", oneSink, code(t, "c", c.typ, "function main(row) return "+c.value+" end"))
			res := run(t, s, 1, doc)
			if !c.dead {
				wantOutcome(t, res, "0 "+strings.TrimSuffix(doc, "}")+`,"c":`+c.want+"}")
				return
			}
			if len(res.Dead) != 1 || res.Outputs[0].Len() != 0 {
				t.Fatalf("outcome is %q, want one dead letter", outcome(res))
			}
			d := res.Dead[0]
			if d.Stage != "column" || !strings.Contains(d.Error, c.want) || !strings.HasPrefix(d.Script, "column c@") || string(d.Original) != doc {
				t.Errorf("dead letter %+v lacks %q", d, c.want)
			}
		})
	}
}

// TestNull: no value is null for every type.
func TestNull(t *testing.T) {
	for _, typ := range Types() {
		for _, text := range []string{"function main(row) end", "function main(row) return nil end", "function main(row) return json.null end"} {
			s := behind(t, "", oneSink, code(t, "c", typ, text))
			wantOutcome(t, run(t, s, 1, `{}`, `{"c":1}`), `0 {"c":null}`, `1 {"c":null}`)
		}
	}
}

// TestColumnsInOrder: a column sees those before it and nothing that another
// did to its row; a field of the same name is replaced in its place.
func TestColumnsInOrder(t *testing.T) {
	s := behind(t, "", oneSink,
		code(t, "a", event.Int64, "function main(row) row.b = 'spoilt' row.x = 1 return row.n + 1 end"),
		code(t, "b", event.Int64, "function main(row) return row.a * 10 end"),
		code(t, "c", event.String, "function main(row) return (row.x and 'x' or '') .. row.b end"),
	)
	wantOutcome(t, run(t, s, 1, `{"n":1}`, ` { "b" : 7 , "n" : 2 } `, `{"\u0061":0,"n":3}`, `{"n":4,"c":{"c":1}}`),
		`0 {"n":1,"a":2,"b":20,"c":"20"}`,
		`1 { "b" : 30 , "n" : 2,"a":3,"c":"30"}`,
		`2 {"\u0061":4,"n":3,"b":40,"c":"40"}`,
		`3 {"n":4,"c":"50","a":5,"b":50}`)
}

// TestBooks: every event that goes in is a row, dead or dropped, and the dead
// letters say which row of an event they are about.
func TestBooks(t *testing.T) {
	const inner = `
function main(event)
  if event.n == 1 then return nil end
  if event.n == 2 then error("inner") end
  return {{n = event.n, i = 1}, {n = event.n, i = 2}, {n = event.n, i = 3}}
end`
	s := behind(t, inner, oneSink,
		code(t, "c", event.Int64, "function main(row) if row.i == 1 then error('outer') end return row.i end"),
		code(t, "d", event.Int32, "function main(row) return row.i == 2 and 'two' or 3 end"),
	)
	res := run(t, s, 1, `{"n":0}`, `{"n":1}`, `{"n":2}`, `[]`)
	for i := range res.Dead {
		res.Dead[i].Error, _, _ = strings.Cut(res.Dead[i].Error, " (at")
	}
	wantOutcome(t, res,
		`0 {"i":3,"n":0,"c":3,"d":3}`,
		`0.0 script column c:1: outer`,
		`0.1 column column d wants int32, got "two"`,
		`2.0 script inner.lua:4: inner`,
		`3.0 parse not a JSON object but an array: send each element as an event of its own (in a file: one object per line)`)
	if res.Dropped != 1 {
		t.Errorf("%d dropped, want 1", res.Dropped)
	}
	for i, script := range []string{"column c@", "column d@", "inner.lua@", "inner.lua@"} {
		if got := res.Dead[i].Script; !strings.HasPrefix(got, script) {
			t.Errorf("dead letter %d is of script %s, want %s", i, got, script)
		}
	}
	if name := s.String(); strings.Count(name, "@") != 3 {
		t.Errorf("the whole is called %s", name)
	}
}

// TestSinkColumns: sinks get the computed fields as typed columns; a row that one
// of them cannot take leaves that one.
func TestSinkColumns(t *testing.T) {
	sinks := []script.Sink{{Name: "one"}, {Name: "two", Columns: []event.Column{{Name: "twice", Path: []string{"twice"}, Type: event.Int32}, {Name: "n", Path: []string{"n"}, Type: event.Int64, Required: true}}}}
	s := behind(t, "", sinks, code(t, "twice", event.Int64, "function main(row) return 2 * (row.m or row.n) end"))
	res := run(t, s, 2, `{"n":1}`, `{"n":2000000000}`, `{"m":3}`, `{"n":4}`)
	wantOutcome(t, res, `0 {"n":1,"twice":2}`, `1 {"n":2000000000,"twice":4000000000}`, `2 {"m":3,"twice":6}`, `3 {"n":4,"twice":8}`,
		`1.0 column column twice wants int32, got 4000000000, which is out of range`,
		`2.0 column column n is required, but n is missing or null`)
	columns := res.Outputs[1].Columns
	if columns.Rows != 2 || columns.Vectors[0].Ints[1] != 8 || string(res.Outputs[1].Data) != `{"n":1,"twice":2}{"n":4,"twice":8}` {
		t.Errorf("columns are %+v beside %s", columns, res.Outputs[1].Data)
	}
	if res.Outputs[0].Columns != nil {
		t.Error("a sink that wants no columns has some")
	}
	if d := res.Dead[0]; d.Sink != "two" {
		t.Errorf("the dead letter is about sink %q", d.Sink)
	}
}

// TestRoutedRows: a row is computed once, whichever sinks it is for; what is said of
// a row is said for each of its sinks, and by its number there.
func TestRoutedRows(t *testing.T) {
	const inner = `
local names = {{"audit", "main"}, "audit", "main", {"main", "audit"}}
function main(event)
  local out = {}
  for i, name in ipairs(names) do out[i] = to(name, {i = i, n = event.n}) end
  out[5] = {i = 5, n = event.n}
  return out
end`
	calls := 0
	counted := code(t, "c", event.Int64, "function main(row) if row.i == 1 then error('no') end return row.n * row.i end")
	counted.Code = &counting{counted.Code, &calls}
	sinks := []script.Sink{{Name: "main"}, {Name: "audit", Routed: true, Columns: []event.Column{{Name: "c", Path: []string{"c"}, Type: event.Int32}}}}
	s := behind(t, inner, sinks, counted)
	in, res := events(0), &event.Result{Outputs: make([]event.Output, 2)}
	in.Append([]byte(`{"n":1000000000}`))
	in.Range.Count = 1
	if err := s.Run(t.Context(), in, res); err != nil {
		t.Fatal(err)
	}
	if calls != 5 {
		t.Errorf("the column was computed for %d rows, want 5", calls)
	}
	got := []string{string(res.Outputs[0].Data), string(res.Outputs[1].Data)}
	for _, d := range res.Dead {
		got = append(got, fmt.Sprintf("%s.%d %s", d.Sink, d.Number, d.Error))
	}
	want := []string{
		`{"i":3,"n":1000000000,"c":3000000000}{"i":4,"n":1000000000,"c":4000000000}{"i":5,"n":1000000000,"c":5000000000}`,
		`{"i":2,"n":1000000000,"c":2000000000}`,
		`audit.0 column c:1: no`, `audit.2 column c wants int32, got 4000000000, which is out of range`, `main.0 column c:1: no`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(res.Outputs[0].To)+len(res.Outputs[1].To) > 0 {
		t.Error("the outputs of sinks say what is for which sink")
	}
}

// TestFinishRows: in a batch with a state, a dead letter has the row as the script returned it, for
// each of its sinks; FinishRows makes of these documents what a run makes of them, without the script.
func TestFinishRows(t *testing.T) {
	const inner = `function main(event) return {{n = event.n, i = 1}, to("audit", {n = event.n, i = 2}), {n = event.n, i = 3}} end`
	sinks := []script.Sink{{Name: "main", Columns: []event.Column{{Name: "c", Path: []string{"c"}, Type: event.Int32}}}, {Name: "audit", Routed: true}}
	columns := func(limit int) *Script {
		return behind(t, inner, sinks,
			code(t, "b", event.Int64, fmt.Sprintf("function main(row) row.x = 1 if row.i < %d then error('no') end return row.i end", limit)),
			code(t, "c", event.Int64, "function main(row) return row.n * row.b end"))
	}
	in := events(0)
	for _, doc := range []string{`{"n":1}`, `{"n":1000000000}`} {
		in.Append([]byte(doc))
	}
	in.Range.Count, in.State = 2, someState{}
	res := &event.Result{Outputs: make([]event.Output, 2)}
	for range 2 {
		if err := columns(3).Run(t.Context(), in, res); err != nil {
			t.Fatal(err)
		}
	}
	letters := func() (all []string) {
		for _, d := range res.Dead {
			all = append(all, fmt.Sprintf("%d.%s.%d %s %s", d.Position-firstPosition, d.Sink, d.Number, d.Stage, d.Document))
		}
		return all
	}
	want := []string{
		`0.audit.0 script {"i":2,"n":1}`, `0.main.0 script {"i":1,"n":1}`, `1.audit.0 script {"i":2,"n":1000000000}`,
		`1.main.0 script {"i":1,"n":1000000000}`, `1.main.1 column {"i":3,"n":1000000000}`,
	}
	if diff := cmp.Diff(want, letters()); diff != "" {
		t.Errorf("dead letters, -want +got:\n%s", diff)
	}

	rows := &event.Output{From: []uint32{0, 1, 2}, To: []uint64{2, 1, 1}}
	retried := events(4) // the last one has no row
	for _, doc := range []string{`{"i":2,"n":1}`, `{"i":1,"n":1000000000}`, `{"i":3,"n":1000000000}`} {
		rows.Data = append(rows.Data, doc...)
		rows.Ends = append(rows.Ends, uint32(len(rows.Data)))
	}
	repaired := columns(0)
	for range 2 {
		if err := repaired.FinishRows(t.Context(), retried, rows, res); err != nil {
			t.Fatal(err)
		}
	}
	got := []string{string(res.Outputs[0].Data), string(res.Outputs[1].Data)}
	want = []string{`{"i":1,"n":1000000000,"b":1,"c":1000000000}`, `{"i":2,"n":1,"b":2,"c":2}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2.main.0 column "}, letters()); diff != "" || res.Ran != 4 {
		t.Errorf("%d ran; dead letters, -want +got:\n%s", res.Ran, diff)
	}
}

type someState struct{}

func (someState) Session() unsafe.Pointer { return nil }

// counting counts the rows that go into a script.
type counting struct {
	script.Script
	rows *int
}

func (c *counting) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	*c.rows += in.Len()
	return c.Script.Run(ctx, in, res)
}

func TestIdentifier(t *testing.T) {
	const inner = "function main(event) return {event, event} end"
	build := func(pipeline string) *Script {
		s := behind(t, inner, oneSink, Column{Name: "id", Type: event.String, Builtin: Identifier})
		s.pipeline = pipeline
		return s
	}
	first := run(t, build("p"), 1, `{}`, `{}`)
	if diff := cmp.Diff(outcome(first), outcome(run(t, build("p"), 1, `{}`, `{}`))); diff != "" {
		t.Errorf("the identifiers change when the batch is run again:\n%s", diff)
	}
	lines, seen := outcome(first), map[string]bool{}
	for i, line := range lines {
		id := strings.Split(line, `"`)[3]
		if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || seen[id] {
			t.Errorf("%s is no identifier, or seen before", id)
		}
		seen[id] = true
		if i > 0 && line[2:] <= lines[i-1][2:] {
			t.Errorf("%s comes before %s", line, lines[i-1])
		}
	}
	if other := outcome(run(t, build("q"), 1, `{}`, `{}`)); other[0] == lines[0] {
		t.Error("another pipeline has the same identifiers")
	}
	if got, want := lines[1][len(lines[1])-20:], `0000000003e8000001"}`; got != want {
		t.Errorf("the identifier of the second row of position 1000 ends in %s, want %s", got, want)
	}
}

func TestTimestamp(t *testing.T) {
	s := behind(t, "", oneSink,
		Column{Name: "at", Type: event.Timestamp, Builtin: Timestamp},
		Column{Name: "s", Type: event.Int64, Builtin: Timestamp},
		code(t, "year", event.String, "function main(row) return row.at:sub(1, 4) end"))
	wantOutcome(t, run(t, s, 1, `{}`), `0 {"at":"2026-11-22T08:00:00.123450Z","s":1795334400,"year":"2026"}`)
}

func TestCheck(t *testing.T) {
	for part, c := range map[string]Column{
		`invalid column name ""`:       {Type: event.Bool},
		`invalid column name "a\"b"`:   {Name: `a"b`, Type: event.Bool},
		"cannot be of type decimal":    {Name: "a", Type: event.Decimal},
		"is of type string, not int64": {Name: "a", Type: event.Int64, Builtin: Identifier},
		"timestamp, or int64":          {Name: "a", Type: event.String, Builtin: Timestamp},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%+v: error is %v, want %q", c, err, part)
		}
	}
}
