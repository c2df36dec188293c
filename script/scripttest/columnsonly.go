package scripttest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// columnsScript returns rows, fails and drops in all possible ways.
const columnsScript = `
function main(event)
  local how = event.how
  event.n = (event.n or 0) + 1
  event.o = {s = event.s}
  if event.part then event.o = event.part end
  if how == "plain" then event.o = nil end
  if how == "misfit" then event.o = nil event.n = "none" end
  if how == "drop" then return nil end
  if how == "error" then error("failed") end
  if how == "loop" then while true do end end
  if how == "table" then return {n = 7, o = {s = "t"}} end
  if how == "list" then return {event, {n = "none"}, {n = 8}} end
  if how == "two" then return event, {n = 9} end
  if how == "route" then return to("sink0", event) end
  return event
end`

// testColumnsOnly: a sink that reads no documents gets the same columns and dead letters as
// one that does.
func testColumnsOnly(t *testing.T, lang script.Language) {
	t.Run("rows", func(t *testing.T) {
		var docs []string
		for round := range 3 {
			for i, how := range strings.Fields("plain part misfit plain drop error table plain list two route plain misfit plain") {
				docs = append(docs, fmt.Sprintf(`{"how":%q,"n":%d,"s":"a\n%d"%s}`, how, 100*round+i, i, map[bool]string{true: `,"part":{"s":"p"}`}[how == "part"]))
			}
		}
		compareColumns(t, lang, script.Limits{}, docs)
		compareColumns(t, lang, script.Limits{}, docs[:1])
		compareColumns(t, lang, script.Limits{}, docs[2:3])
		compareColumns(t, lang, script.Limits{}, nil)
	})
	t.Run("after a limit", func(t *testing.T) {
		compareColumns(t, lang, script.Limits{EventTime: 200 * time.Millisecond, BatchTime: time.Minute}, []string{
			`{"how":"plain","n":1,"s":"one"}`, `{"how":"misfit"}`, `{"how":"loop"}`, `{"how":"plain","n":2,"s":"two"}`,
			`{"how":"misfit"}`, `{"how":"list","n":3}`, `{"how":"loop"}`, `{"how":"plain","n":4,"s":"four"}`,
		})
	})
	t.Run("output", func(t *testing.T) { testColumnsOnlyOutput(t, lang) })
}

func columnSinks(columnsOnly bool) script.Options {
	options := sinks([]event.Column{
		{Name: "n", Path: []string{"n"}, Type: event.Int64, Required: true},
		{Name: "s", Path: []string{"s"}, Type: event.String},
		{Name: "deep", Path: []string{"o", "s"}, Type: event.String},
		{Name: "o", Path: []string{"o"}, Type: event.JSON},
	})
	options.Sinks[0].ColumnsOnly = columnsOnly
	return options
}

func compareColumns(t *testing.T, lang script.Language, limits script.Limits, docs []string) {
	t.Helper()
	var books []string
	for _, columnsOnly := range []bool{false, true} {
		options := columnSinks(columnsOnly)
		options.Limits = limits
		s := load(t, lang, columnsScript, options)
		for range 2 { // what is kept from run to run must not matter
			in := batch(docs...)
			in.State = someState{}
			books = append(books, describeColumns(t, s, runBatch(t, s, in, docs)))
		}
	}
	for _, book := range books[1:] {
		if diff := cmp.Diff(books[0], book); diff != "" {
			t.Errorf("with documents, and without:\n%s", diff)
		}
	}
}

// someState makes dead letters keep the documents of rows.
type someState struct{}

func (someState) Session() unsafe.Pointer { return nil }

// describeColumns describes a result except its documents.
func describeColumns(t *testing.T, s script.Script, res *event.Result) string {
	t.Helper()
	var book strings.Builder
	out := &res.Outputs[0]
	fmt.Fprintf(&book, "%d ran, %d dropped, %d rows of %d\n", res.Ran, res.Dropped, out.Columns.Rows, out.Len())
	for row := range out.Columns.Rows {
		fmt.Fprintln(&book, out.From[row], rowText(out.Columns, row))
	}
	for _, d := range res.Dead {
		fmt.Fprintln(&book, d.Position, d.Sink, d.Number, d.Stage, strings.ReplaceAll(d.Error, s.String(), ""), string(d.Document))
		if isMisfit := d.Stage == "column"; isMisfit != strings.Contains(string(d.Document), `"none"`) {
			t.Errorf("the dead letter of event %d at stage %s has the document %q", d.Position, d.Stage, d.Document)
		}
	}
	return book.String()
}

// testColumnsOnlyOutput: columns count against the output limit where there are no documents.
func testColumnsOnlyOutput(t *testing.T, lang script.Language) {
	options := columnSinks(true)
	options.Limits = script.Limits{Output: 1000, EventTime: 20 * time.Second, BatchTime: time.Minute}
	s := load(t, lang, `function main(event) event.s = ("x"):rep(390) return event end`, options)
	docs := strings.Fields(strings.Repeat(`{"n":1} `, 5))
	in, res := batch(docs...), result()
	err := s.Run(t.Context(), in, res)
	var limit *script.LimitError
	if !errors.As(err, &limit) || limit.Limit != "output" {
		t.Fatalf("error is %v, want the output limit", err)
	}
	if out := &res.Outputs[0]; res.Ran != 2 || out.Len() != 2 || out.Columns.Rows != 2 {
		t.Errorf("ran %d events with %d outputs and %d rows, want 2", res.Ran, out.Len(), out.Columns.Rows)
	}
	checkResult(t, s, docs, in, res)
}
