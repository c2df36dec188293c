package scripttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// routes are scripts for three sinks: main and audit, and cold, which is Routed.
var routes = []struct {
	name, script      string
	in                []string // one event {"n":1} when empty
	main, audit, cold string   // INDEX DOCUMENT, …
	dead              []string // INDEX STAGE: PART | PART
}{
	{name: "unrouted", script: `function main(e) return e end`, main: `0 {"n":1}`, audit: `0 {"n":1}`},
	{name: "to one", script: `function main(e) return to("audit", e) end`, audit: `0 {"n":1}`},
	{name: "to one that is routed", script: `function main(e) return to("cold", e) end`, cold: `0 {"n":1}`},
	{name: "to several", script: `function main(e) return to({"cold", "main", "cold"}, e) end`, main: `0 {"n":1}`, cold: `0 {"n":1}`},
	{
		name: "names from the event", script: `function main(e) return to(e.sinks, {n = 2}) end`,
		in: []string{`{"sinks":["main","cold"]}`, `{"sinks":"audit"}`}, main: `0 {"n":2}`, cold: `0 {"n":2}`, audit: `1 {"n":2}`,
	},
	{
		name: "several values", script: `function main(e) return to("cold", e), e, to("audit", {x = 1}), nil end`,
		main: `0 {"n":1}`, audit: `0 {"n":1}, 0 {"x":1}`, cold: `0 {"n":1}`,
	},
	{
		name: "several values without routes", script: `function main(e) return e, {{x = 1}, {x = 2}} end`,
		main: `0 {"n":1}, 0 {"x":1}, 0 {"x":2}`, audit: `0 {"n":1}, 0 {"x":1}, 0 {"x":2}`,
	},
	{
		name: "in a list", script: `function main(e) return {to("cold", e), {x = 1}, to("main", {{x = 2}, {x = 3}})} end`,
		main: `0 {"x":1}, 0 {"x":2}, 0 {"x":3}`, audit: `0 {"x":1}`, cold: `0 {"n":1}`,
	},
	{
		name: "a list, a part, nothing", in: []string{`{"l":[{"x":1},{"x":2}],"o":{ "x":3 }}`},
		script: `function main(e) return to("main", e.l), to("audit", e.o), to("cold", nil), to("cold", json.array()) end`,
		main:   `0 {"x":1}, 0 {"x":2}`, audit: `0 { "x":3 }`,
	},
	{
		name: "some events", script: `function main(e) if e.n == 2 then return to("cold", e) end if e.n == 3 then return nil end return e end`,
		in:   []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`},
		main: `0 {"n":1}, 3 {"n":4}`, audit: `0 {"n":1}, 3 {"n":4}`, cold: `1 {"n":2}`,
	},
	{
		name: "written as it is in the end", script: `function main(e) local r = to("cold", e) e.n = 2 return r, e end`,
		main: `0 {"n":2}`, audit: `0 {"n":2}`, cold: `0 {"n":2}`,
	},
	{
		name: "the same twice", script: `function main(e) local r = to("cold", e) return r, {r, r} end`,
		cold: `0 {"n":1}, 0 {"n":1}, 0 {"n":1}`,
	},
	{
		name: "a failed event leaves nothing", in: []string{`{"n":1}`, `{"n":2}`, `{"n":3}`},
		script: `function main(e) if e.n == 2 then return to("cold", e), 5 end return to("audit", e) end`,
		audit:  `0 {"n":1}, 2 {"n":3}`, dead: []string{`1 script: main returned | number`},
	},
	{
		name: "unknown name", script: "function main(e)\n local r = to('aduit', e) return r end",
		dead: []string{`0 script: case.lua:2: | unknown sink "aduit" | did you mean "audit"?`},
	},
	{
		name: "unlike any name", script: `function main(e) return to({"main", "elsewhere"}, e) end`,
		dead: []string{`0 script: unknown sink "elsewhere" | known sinks: main, audit, cold`},
	},
	{name: "pcall", script: `function main(e) if pcall(to, "x", e) then return nil end return to("cold", e) end`, cold: `0 {"n":1}`},
	{
		name: "misuse", in: []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`, `{"n":6}`, `{"n":7}`, `{"n":8}`},
		script: `
kept = {}
function main(e)
  if e.n == 1 then return to("main") end
  if e.n == 2 then return to(5, e) end
  if e.n == 3 then return to({}, e) end
  if e.n == 4 then return to("main", to("cold", e)) end
  if e.n == 5 then return {x = to("main", e)} end
  if e.n == 6 then return to("main", "text") end
  if e.n == 7 then kept[1] = to("main", e) return nil end
  return kept[1]
end`,
		dead: []string{
			`0 script: to | event`, `1 script: to | name`, `2 script: to | no sink`, `3 script: to() inside of to()`,
			`4 script: x | userdata`, `5 script: main returned | string`, `7 script: after its call`,
		},
	},
}

func testRouting(t *testing.T, lang script.Language) {
	three := []script.Sink{{Name: "main"}, {Name: "audit"}, {Name: "cold", Routed: true}}
	for _, c := range routes {
		t.Run(c.name, func(t *testing.T) {
			if len(c.in) == 0 {
				c.in = []string{`{"n":1}`}
			}
			res := runFor(t, lang, c.script, three, c.in...)
			got := []string{rowsOfSink(res, 0), rowsOfSink(res, 1), rowsOfSink(res, 2)}
			if diff := cmp.Diff([]string{c.main, c.audit, c.cold}, got); diff != "" {
				t.Errorf("outputs of main, audit and cold (-want +got):\n%s", diff)
			}
			(&testCase{dead: c.dead}).checkDead(t, res.Dead)
		})
	}
	t.Run("one sink", func(t *testing.T) { testRouteToTheOnly(t, lang) })
	t.Run("all of them", func(t *testing.T) { testSingleOutput(t, lang) })
	t.Run("columns", func(t *testing.T) { testRoutedColumns(t, lang) })
	t.Run("misfits", func(t *testing.T) { testMisfitsOfSinks(t, lang) })
	t.Run("the last sink", func(t *testing.T) { testLastSink(t, lang) })
	t.Run("used again", func(t *testing.T) { testRoutesAgain(t, lang) })
	t.Run("as a variable", func(t *testing.T) {
		s := load(t, lang, `local to = 5 function main(e) e.to = to return e end`, script.Options{Sinks: three})
		res := &event.Result{Outputs: make([]event.Output, 3)}
		if err := s.Run(t.Context(), batch(`{}`), res); err != nil || rowsOfSink(res, 0) != `0 {"to":5}` {
			t.Errorf("output is %s, error %v", rowsOfSink(res, 0), err)
		}
	})
}

// runFor passes docs through a script that is loaded for sinks.
func runFor(t *testing.T, lang script.Language, text string, sinks []script.Sink, docs ...string) *event.Result {
	t.Helper()
	s := load(t, lang, text, script.Options{Sinks: sinks})
	in, res := batch(docs...), &event.Result{Outputs: make([]event.Output, len(sinks))}
	if err := s.Run(t.Context(), in, res); err != nil {
		t.Fatal(err)
	}
	checkResult(t, s, docs, in, res)
	return res
}

// rowsOfSink has the documents of an output in a line.
func rowsOfSink(res *event.Result, i int) string {
	return strings.Join(outLines(&res.Outputs[i]), ", ")
}

func testRouteToTheOnly(t *testing.T, lang script.Language) {
	n := []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}
	res := runFor(t, lang, `function main(e) if e.n == 2 then return to("only", e) end return e end`,
		[]script.Sink{{Name: "only", Columns: n}}, `{"n":1}`, `{"n":2}`, `{"n":3}`)
	if got, want := rowsOfSink(res, 0), `0 {"n":1}, 1 {"n":2}, 2 {"n":3}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	for row, want := range []string{"1", "2", "3"} {
		wantCell(t, res, row, event.Int64, want)
	}
}

// testSingleOutput asks for one output, which names the sinks of each row.
func testSingleOutput(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(e) if e.n == 2 then return to({"b", "c"}, e), {x = 1} end return e end`, script.Options{
		Sinks: []script.Sink{{Name: "a"}, {Name: "b"}, {Name: "c", Routed: true}}, SingleOutput: true,
	})
	res := result()
	for _, c := range []struct {
		in   []string
		want string
		to   string
	}{
		{[]string{`{"n":1}`, `{"n":2}`, `{"n":3}`}, `0 {"n":1}, 1 {"n":2}, 1 {"x":1}, 2 {"n":3}`, "[0 6 0 0]"},
		{[]string{`{"n":1}`, `{"n":3}`}, `0 {"n":1}, 1 {"n":3}`, "[]"},
	} {
		if err := s.Run(t.Context(), batch(c.in...), res); err != nil {
			t.Fatal(err)
		}
		if got, to := rowsOfSink(res, 0), fmt.Sprint(res.Outputs[0].To); got != c.want || to != c.to {
			t.Errorf("output is %s for %s, want %s for %s", got, to, c.want, c.to)
		}
	}
}

// numbered are two sinks that want a number from different fields.
func numbered() []script.Sink {
	sink := func(name, field string, routed bool) script.Sink {
		return script.Sink{Name: name, Routed: routed, Columns: []event.Column{{Name: field, Path: []string{field}, Type: event.Int64, Required: true}}}
	}
	return []script.Sink{sink("a", "n", false), {Name: "plain"}, sink("b", "m", true)}
}

// testRoutedColumns: a sink's columns are those of its own rows, and nobody asks
// whether the rows of others fit.
func testRoutedColumns(t *testing.T, lang script.Language) {
	text := `function main(e) if e.m then return to("b", e) end return e end`
	res := runFor(t, lang, text, numbered(), `{"n":1}`, `{"m":2}`, `{"n":3}`, `{"m":4}`)
	if len(res.Dead) > 0 {
		t.Errorf("%d dead: %v", len(res.Dead), &res.Dead[0])
	}
	a, b := res.Outputs[0].Columns, res.Outputs[2].Columns
	if diff := cmp.Diff([][]int64{{1, 3}, {2, 4}}, [][]int64{a.Vectors[0].Ints, b.Vectors[0].Ints}); diff != "" {
		t.Errorf("columns of a and b (-want +got):\n%s", diff)
	}
	if res.Outputs[1].Columns != nil {
		t.Error("the sink that asked for no columns got some")
	}
	res = runFor(t, lang, text, numbered(), `{"n":1}`)
	if a, b := res.Outputs[0].Columns, res.Outputs[2].Columns; a.Rows != 1 || b == nil || b.Rows != 0 {
		t.Errorf("columns without a route are %+v and %+v", a, b)
	}
}

// testMisfitsOfSinks: a row leaves only the sink whose columns it does not fit. Its
// dead letter has the sink and which of the event's rows there it is.
func testMisfitsOfSinks(t *testing.T, lang script.Language) {
	text := `function main(e) return {n = 1}, to({"a", "b"}, e), to("b", {m = 2}), {n = 3}, to("b", {m = "x"}) end`
	res := runFor(t, lang, text, numbered(), `{"n":7,"m":8}`, `{"n":7}`, `{"m":8}`)
	want := []string{
		`0 {"n":1}, 0 {"n":7,"m":8}, 0 {"n":3}, 1 {"n":1}, 1 {"n":7}, 1 {"n":3}, 2 {"n":1}, 2 {"n":3}`,
		`0 {"n":1}, 0 {"n":3}, 1 {"n":1}, 1 {"n":3}, 2 {"n":1}, 2 {"n":3}`,
		`0 {"n":7,"m":8}, 0 {"m":2}, 1 {"m":2}, 2 {"m":8}, 2 {"m":2}`,
	}
	if diff := cmp.Diff(want, []string{rowsOfSink(res, 0), rowsOfSink(res, 1), rowsOfSink(res, 2)}); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	var dead []string
	for _, d := range res.Dead {
		dead = append(dead, fmt.Sprintf("%d %s %s %d", d.Position-firstPosition, d.Stage, d.Sink, d.Number))
	}
	want = []string{"0 column b 2", "1 column b 0", "1 column b 2", "2 column a 1", "2 column b 2"}
	if diff := cmp.Diff(want, dead); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	for _, i := range []int{0, 2} {
		if out := &res.Outputs[i]; out.Columns.Rows != out.Len() || len(out.Columns.Vectors[0].Ints) != out.Len() {
			t.Errorf("output %d has columns for %d rows of %d", i, out.Columns.Rows, out.Len())
		}
	}
}

// testLastSink routes to the last of as many sinks as there can be.
func testLastSink(t *testing.T, lang script.Language) {
	var all []script.Sink
	for i := range script.SinksMax {
		all = append(all, script.Sink{Name: fmt.Sprintf("sink%d", i)})
	}
	res := runFor(t, lang, `function main(e) return to("sink63", e) end`, all, `{}`)
	for i := range all {
		if got, want := res.Outputs[i].Len(), i/63; got != want {
			t.Errorf("sink %d got %d rows, want %d", i, got, want)
		}
	}
}

// testRoutesAgain: nothing of a batch is left in the result of the next one.
func testRoutesAgain(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(e) if e.to then return to(e.to, e) end return e end`, script.Options{Sinks: numbered()})
	res := &event.Result{Outputs: make([]event.Output, 3)}
	for _, doc := range []string{`{"to":"b","m":1}`, `{"n":1}`, `{"to":"plain"}`, `{"n":"x"}`, `{"to":"b"}`} {
		in := batch(doc)
		if err := s.Run(t.Context(), in, res); err != nil {
			t.Fatal(err)
		}
		checkResult(t, s, []string{doc}, in, res)
		for _, i := range []int{0, 2} {
			if out := &res.Outputs[i]; out.Columns.Rows != out.Len() {
				t.Errorf("%s: output %d has columns for %d rows of %d", doc, i, out.Columns.Rows, out.Len())
			}
		}
	}
}
