//go:build cgo && luajit

package luajit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
)

// TestColumnsOfTheEvent checks that the columns of an event are the same whether it
// is returned itself, when they are taken from what it has become in memory, or in a
// list, when they are read from the bytes.
func TestColumnsOfTheEvent(t *testing.T) {
	values := []string{
		`1`, `-0`, `1.5`, `2147483648`, `9007199254740993`, `1e400`, `"text"`, `"\u00e9\n\"q\""`, `"2026-01-02T03:04:05.678Z"`, `""`,
		`true`, `false`, `null`, `{}`, `{"a":1,"b":[1, 2]}`, `[1, "x"]`, `1767225600.25`, `"12"`,
	}
	in := &event.Batch{}
	for i, v := range values {
		next := values[(i+1)%len(values)]
		in.Append(fmt.Appendf(nil, `{"a":%s,"b":{"c":%s,"d":%s},"e":%s}`, v, next, v, next))
		in.Append(fmt.Appendf(nil, `{"e":1,"a":%s,"\u0061":%s,"b":{"c":{"c":1}}}`, v, next))
	}
	in.Range.Count = uint64(in.Len())
	var sinks []script.Sink
	for kind := event.Bool; kind <= event.JSON; kind++ {
		for _, path := range [][]string{{"a"}, {"b", "c"}, {"b", "c", "c"}, {"new"}, {"b", "new"}, {"e"}} {
			name := fmt.Sprint(kind, path)
			sinks = append(sinks, script.Sink{Name: name, Columns: []event.Column{{Name: name, Path: path, Type: kind}}})
		}
	}
	for _, edit := range []string{
		``, `e.new = e.a`, `e.a = e.b`, `e.b = nil`, `e.b.c = e.a`, `e.b.new = 12.25`, `e.new = "é \"x\"\n"`, `e.new, e.b.new = true, -7`,
		`e.new = 1 e.new = nil`, `e.new = 1 e.new = "two" e.b.c = nil`, `e.a = nil e.a = 1e300`, `e.new = 1e15 + 0.5 e.e = "2026-01-02 03:04:05"`,
		`e.b = nil e.b = "b"`, `e["\n\"k"] = 1 e.new = "plain"`, `e.new = json.null`,
	} {
		t.Run(edit, func(t *testing.T) {
			direct := columnsOf(t, in, sinks, "function main(e) "+edit+" return e end")
			listed := columnsOf(t, in, sinks, "function main(e) "+edit+" return {e} end")
			if diff := cmp.Diff(listed, direct); diff != "" {
				t.Errorf("(-in a list +itself)\n%s", diff)
			}
		})
	}
}

// columnsOf runs the batch twice, once for the engine to get warm.
func columnsOf(t *testing.T, in *event.Batch, sinks []script.Sink, text string) event.Result {
	s, err := luajit.Load(t.Context(), script.Code{Name: "case.lua", Text: []byte(text)}, script.Options{Sinks: sinks})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	res := event.Result{Outputs: make([]event.Output, len(sinks))}
	for range 2 {
		if err := s.Run(t.Context(), in, &res); err != nil {
			t.Fatal(err)
		}
	}
	for i := range res.Dead {
		res.Dead[i].Script = "" // names the version
	}
	return res
}

// TestColumnsOfManyForms takes columns from documents that come in runs of one form, of
// which the next may have the same keys in other places, twice, or spelled otherwise; and
// the script writes to some of them, and drops others.
func TestColumnsOfManyForms(t *testing.T) {
	const edit = `
    if e.write == 9 then return nil end
    if e.write == 1 then e.a = "written" elseif e.write == 2 then e.b, e.new = nil, e.a
    elseif e.write == 3 then e.new, e.more = "n", e.b elseif e.write == 4 then e.more, e.new = "m", "n" end `

	random := rand.New(rand.NewPCG(7, 8))
	fields := []string{`"a":%s`, `"b":%s`, `"\u0061":%s`, ` "a" : %s`, `"b":{"c":%s}`, `"c":%s`, `"d":[%s]`, `"write":%s`, `"a2":%s`, `"b2":%s`}
	values := []string{`1`, `-20`, `"text"`, `"a\u0020b"`, `null`, `true`, `""`, `2.5`, `"2026-01-02T03:04:05Z"`}
	in := &event.Batch{}
	for range 100 {
		form := make([]string, 1+random.IntN(6))
		for i := range form {
			form[i] = fields[random.IntN(len(fields))]
		}
		dropped := random.IntN(2) * 6
		for i := range dropped + 1 + random.IntN(9) {
			doc := "{" + strings.Join(form, ",")
			for strings.Contains(doc, "%s") {
				doc = strings.Replace(doc, "%s", values[random.IntN(len(values))], 1)
			}
			write := random.IntN(5)
			if i < dropped {
				write = 9
			}
			in.Append(fmt.Appendf(nil, `%s,"write":%d}`, doc, write))
		}
	}
	in.Range.Count = uint64(in.Len())
	var sinks []script.Sink
	for _, kind := range []event.Type{event.Int64, event.String, event.Timestamp, event.JSON} {
		for _, path := range [][]string{{"a"}, {"b"}, {"b", "c"}, {"c"}, {"new"}, {"more"}, {"a2"}} {
			name := fmt.Sprint(kind, path)
			sinks = append(sinks, script.Sink{Name: name, Columns: []event.Column{{Name: name, Path: path, Type: kind}}})
		}
	}
	direct := columnsOf(t, in, sinks, "function main(e) "+edit+" return e end")
	listed := columnsOf(t, in, sinks, "function main(e) "+edit+" return {e} end")
	if diff := cmp.Diff(listed, direct); diff != "" {
		t.Errorf("(-in a list +itself)\n%.2000s", diff)
	}
}

// TestFinishRows makes columns of rows that a script has returned earlier, without running it. The only
// sink reads no documents of rows that fit.
func TestFinishRows(t *testing.T) {
	s, err := luajit.Load(t.Context(), script.Code{Name: "case.lua", Text: []byte(`function main() error "must not run" end`)}, script.Options{
		Sinks: []script.Sink{{Name: "table", ColumnsOnly: true, Columns: []event.Column{{Name: "n", Path: []string{"n"}, Type: event.Int64}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	in := &event.Batch{Range: event.Range{First: 10, Count: 3}}
	for range 3 {
		in.Append([]byte(`{"event":true}`))
	}
	rows := &event.Output{Data: []byte(`{"n":1}{"n":"x"}{"n":3}`), Ends: []uint32{7, 16, 23}, From: []uint32{0, 1, 2}, To: []uint64{1, 1, 1}}
	res := &event.Result{Outputs: make([]event.Output, 1)}
	for range 2 {
		if err := s.FinishRows(t.Context(), in, rows, res); err != nil {
			t.Fatal(err)
		}
	}
	columns := res.Outputs[0].Columns
	if columns.Rows != 2 || columns.Vectors[0].Ints[1] != 3 || res.Ran != 3 {
		t.Errorf("%d ran, with the columns %+v", res.Ran, columns)
	}
	if len(res.Dead) != 1 || res.Dead[0].Position != 11 || res.Dead[0].Stage != "column" || string(res.Dead[0].Original) != `{"event":true}` {
		t.Errorf("dead letters %+v", res.Dead)
	}
}
