//go:build cgo && luajit && lmdb

package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/sink"
)

// numberingLua numbers events. It returns the event itself, a table, or several rows.
const numberingLua = `
local nodedb = require "nodedb"
function main(e)
  e.n = nodedb.node("^n"):incr()
  if not e.more then return e end
  local rows = {{id = e.id, n = e.n, v = e.v}}
  for i, v in ipairs(e.more) do rows[i + 1] = {id = e.id, n = e.n, v = v} end
  return rows
end`

// A storedRowsRun is how a pipeline runs once: the type of column v, the code of the computed column c,
// and whether the sink takes every row.
type storedRowsRun struct {
	v       event.Type
	c       string
	lenient bool
	rows    []string // that the run adds to the table
	letters []string // afterwards, without the script
}

// load loads a script that the computed column follows.
func (run *storedRowsRun) load(t *testing.T, code string, sinks []script.Sink, limits script.Limits) script.Script {
	t.Helper()
	options := script.Options{Sinks: sinks, Limits: limits, Extension: lua.ForState()}
	if run.c != "" {
		options.Sinks, options.SingleOutput = make([]script.Sink, len(sinks)), true
		for i := range sinks {
			options.Sinks[i].Name = sinks[i].Name
		}
	}
	loaded, err := luajit.Load(t.Context(), script.Code{Name: "s.lua", Text: []byte(code)}, options)
	if err != nil {
		t.Fatal(err)
	}
	if run.c == "" {
		t.Cleanup(func() { loaded.Close() })
		return loaded
	}
	column, err := luajit.Load(t.Context(), script.Code{Name: "column c", Text: []byte("function main(row) " + run.c + " end")}, script.Options{Sinks: []script.Sink{{}}, ReturnsValue: true})
	if err != nil {
		t.Fatal(err)
	}
	both := computed.New("test", loaded, []computed.Column{{Name: "c", Type: event.Int64, Code: column}}, sinks, time.Now)
	t.Cleanup(func() { both.Close() })
	return both
}

// TestStoredRows retries rows that failed after their events had changed the state. No retry runs
// main, and each row has the number that it got first.
func TestStoredRows(t *testing.T) {
	const wantsInt, wantsBool = "column v wants int64, got ", "column v wants bool, got "
	for name, test := range map[string]struct {
		bare bool // the only sink reads no documents
		docs []string
		runs []storedRowsRun
	}{
		"a column of another type": {
			docs: []string{`{"id":1,"v":1}`, `{"id":2,"v":"x"}`, `{"id":3,"v":3}`},
			runs: []storedRowsRun{
				{v: event.Int64, rows: []string{`{"id":1,"n":1,"v":1}`, `{"id":3,"n":3,"v":3}`}, letters: []string{`1 table 0 column ` + wantsInt + `"x" {"id":2,"v":"x","n":2}`}},
				{v: event.Bool, letters: []string{`1 table 0 column ` + wantsBool + `"x" {"id":2,"v":"x","n":2}`}},
				{v: event.String, rows: []string{`{"id":2,"n":2,"v":"x"}`}},
			},
		},
		"without documents": {
			bare: true,
			docs: []string{`{"id":1,"v":1}`, `{"id":2,"v":"x"}`, `{"id":3,"v":3,"more":["y",4]}`},
			runs: []storedRowsRun{
				{v: event.Int64, rows: []string{`{"id":1,"n":1,"v":1}`, `{"id":3,"n":3,"v":3}`, `{"id":3,"n":3,"v":4}`}, letters: []string{
					`1 table 0 column ` + wantsInt + `"x" {"id":2,"v":"x","n":2}`, `2 table 1 column ` + wantsInt + `"y" {"id":3,"n":3,"v":"y"}`}},
				{v: event.String, rows: []string{`{"id":2,"n":2,"v":"x"}`, `{"id":3,"n":3,"v":"y"}`}},
			},
		},
		"one of several rows": {
			docs: []string{`{"id":1,"v":1,"more":["x",3]}`, `{"id":2,"v":2}`},
			runs: []storedRowsRun{
				{v: event.Int64, rows: []string{`{"id":1,"n":1,"v":1}`, `{"id":1,"n":1,"v":3}`, `{"id":2,"n":2,"v":2}`}, letters: []string{`0 table 1 column ` + wantsInt + `"x" {"id":1,"n":1,"v":"x"}`}},
				{v: event.JSON, rows: []string{`{"id":1,"n":1,"v":"x"}`}},
			},
		},
		"a computed column": {
			docs: []string{`{"id":1,"v":1}`, `{"id":2,"v":2}`},
			runs: []storedRowsRun{
				{v: event.Int64, c: `if row.id == 2 then error "no" end return row.n`, rows: []string{`{"id":1,"n":1,"v":1,"c":1}`}, letters: []string{
					`1 audit 0 script column c: no {"id":2,"v":2,"n":2}`, `1 table 0 script column c: no {"id":2,"v":2,"n":2}`}},
				{v: event.Int64, c: `return "two"`, letters: []string{
					`1 audit 0 column column c wants int64, got "two" {"id":2,"v":2,"n":2}`, `1 table 0 column column c wants int64, got "two" {"id":2,"v":2,"n":2}`}},
				{v: event.Int64, c: `return -row.n`, rows: []string{`{"id":2,"n":2,"v":2,"c":-2}`}},
			},
		},
		"a column behind a computed one": {
			docs: []string{`{"id":1,"v":"x"}`},
			runs: []storedRowsRun{
				{v: event.Int64, c: `return 1`, letters: []string{`0 table 0 column ` + wantsInt + `"x" {"id":1,"v":"x","n":1}`}},
				{v: event.String, c: `return row.c or 2`, rows: []string{`{"id":1,"n":1,"v":"x","c":2}`}},
			},
		},
		"rejected by the sink at last": {
			docs: []string{`{"id":1,"v":"bad"}`},
			runs: []storedRowsRun{
				{v: event.Int64, letters: []string{`0 table 0 column ` + wantsInt + `"bad" {"id":1,"v":"bad","n":1}`}},
				{v: event.String, letters: []string{`0 table 0 sink bad row {"id":1,"v":"bad","n":1}`}},
				{v: event.JSON, lenient: true, rows: []string{`{"id":1,"n":1,"v":"bad"}`}},
			},
		},
		"rejected by the sink": {
			docs: []string{`{"id":1,"v":"bad"}`},
			runs: []storedRowsRun{
				{v: event.String, letters: []string{`0 table 0 sink bad row row {"id":1,"v":"bad","n":1}`}},
				{v: event.JSON, letters: []string{`0 table 0 sink the row was made for other columns than sink table has now; its event has changed the state already, so the script cannot make it again row {"id":1,"v":"bad","n":1}`}},
				{v: event.String, lenient: true, rows: []string{`{"id":1,"n":1,"v":"bad"}`}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newStateRig(t, numberingLua, test.docs, t.TempDir())
			r.table.bare = test.bare
			audit := newMemorySink()
			audit.lenient = true
			if !test.bare {
				r.config.Sinks, r.config.Home = []Sink{r.config.Sinks[0], {Name: "audit", Sink: audit, Guarantee: sink.ExactlyOnce}, r.config.Sinks[1]}, 2
			}
			code, before, audited := numberingLua, 0, 0
			for i, run := range test.runs {
				r.table.spec = []event.Column{{Name: "id", Path: []string{"id"}, Type: event.Int64}, {Name: "n", Path: []string{"n"}, Type: event.Int64}, {Name: "v", Path: []string{"v"}, Type: run.v}}
				if run.c != "" {
					r.table.spec = append(r.table.spec, event.Column{Name: "c", Path: []string{"c"}, Type: event.Int64})
				}
				r.table.lenient = run.lenient
				sinks := []script.Sink{{Name: "table", Columns: r.table.spec, ColumnsOnly: test.bare}}
				if !test.bare {
					sinks = append(sinks, script.Sink{Name: "audit"})
				}
				r.config.Script = run.load(t, code, sinks, script.Limits{})
				r.run()
				rows := r.table.allRows()
				if diff := cmp.Diff(run.rows, rows[before:], cmpEmpty); diff != "" {
					t.Errorf("run %d, rows (-want +got):\n%s", i, diff)
				}
				if diff := cmp.Diff(run.letters, r.describeLetters(), cmpEmpty); diff != "" {
					t.Errorf("run %d, dead letters (-want +got):\n%s", i, diff)
				}
				if got := r.get(nodedb.Name("^n")); got != fmt.Sprint(len(test.docs)) {
					t.Errorf("run %d: the state has counted %s events, want %d", i, got, len(test.docs))
				}
				code, before, audited = `function main() error "main ran again" end`, len(rows), len(audit.allRows())
				if _, err := r.letters.Retry(deadletter.Filter{}); err != nil {
					t.Fatal(err)
				}
			}
			if !test.bare && audited != before {
				t.Errorf("the second sink has %d rows, want the %d of the first", audited, before)
			}
		})
	}
}

// cmpEmpty makes nil equal to an empty list.
var cmpEmpty = cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Comparer(func(a, b []string) bool { return true }))

// describeLetters describes dead letters with the rows that they keep.
func (r *stateRig) describeLetters() (all []string) {
	r.t.Helper()
	for l, err := range r.letters.List(deadletter.Filter{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		text := fmt.Sprintf("%d %s %d %s %s", l.Position, l.Sink, l.Number, l.Stage, strings.Replace(l.Error, "c:1: ", "c: ", 1))
		if len(l.Document) > 0 {
			text += " " + string(l.Document)
		}
		if len(l.Row) > 0 {
			out, err := DecodeRow(l.Row)
			if err != nil {
				r.t.Fatal(err)
			}
			text += " row " + string(out.Doc(0))
		}
		all = append(all, text)
	}
	return all
}

// TestStoredRowsThatCannotBeMade retries letters without a row, as they were before the pipeline had a
// state, and letters of a sink that the pipeline does not have any more: they stay, and say why.
func TestStoredRowsThatCannotBeMade(t *testing.T) {
	r := newStateRig(t, numberingLua, []string{`{"id":1}`, `{"id":2}`}, t.TempDir())
	r.run()
	letters := []event.DeadLetter{
		{Position: 0, Sink: "table", Stage: "column", Error: "first", Original: []byte(`{"id":1}`)},
		{Position: 0, Sink: "other", Stage: "column", Error: "first", Original: []byte(`{"id":1}`), Document: []byte(`{"id":1,"n":1}`)},
		{Position: 1, Sink: "table", Number: 2, Stage: "column", Error: "first", Original: []byte(`{"id":2}`), Document: []byte(`{"id":2,"n":2}`)},
	}
	all := event.Range{Count: 2}
	if err := errors.Join(r.letters.Replace("test", "a", all, letters), r.letters.MarkCommitted("test", "a", all)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.letters.Retry(deadletter.Filter{}); err != nil {
		t.Fatal(err)
	}
	r.run()
	want := []string{
		"0 table 0 sink its letter does not have the row: it was stored before the pipeline had a state, or by an earlier version of perigee. " +
			"The script cannot make the row again, since it would change the state; send the event again, or purge the letter",
		`0 other 0 sink unknown sink "other"; the pipeline has table, changelog {"id":1,"n":1}`,
	}
	if diff := cmp.Diff(want, r.describeLetters()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	rows := r.table.allRows()
	if len(rows) != 3 || rows[2] != `{"id":2,"n":2}` || r.get(nodedb.Name("^n")) != "2" {
		t.Errorf("rows %q after a state that has counted %s", rows, r.get(nodedb.Name("^n")))
	}
}
