package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/rowtext"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/postgres"
	"github.com/perigeedb/perigee/sink/stdout"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options() engine.Options {
	return engine.Options{
		Kinds: engine.Kinds{
			Sources: []source.Kind{generate.Kind()}, Sinks: []sink.Kind{postgres.Kind(), stdout.Kind()},
			Languages: []script.Language{lua.Language()},
			Modules: []script.Module{{Name: "geo", Functions: map[string]script.Func{
				"lookup": func(context.Context, []any) ([]any, error) { return []any{"the real one"}, nil },
			}}},
		},
		Lookup: func(string) (string, bool) { return "", false },
	}
}

// load loads a pipeline with a table of PostgreSQL and a routed sink.
func load(t *testing.T, code, rest string, with trial.Options) *trial.Pipeline {
	t.Helper()
	text := "data: " + t.TempDir() + "\npipelines:\n  p:\n    source: {generate: {events: 1}}\n    script: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n      ") + "\n" + rest + `
    sinks:
      db:
        postgres:
          user: u
          database: d
          table: t
          columns:
            - {name: b, type: bool}
            - {name: i, type: int32}
            - {name: f, type: float64}
            - {name: d, type: decimal}
            - {name: s, type: string}
            - {name: at, type: timestamp}
            - {name: j, type: json}
      audit: {stdout: {}, routed: true}
`
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := engine.Load(t.Context(), file, options())
	if err != nil {
		t.Fatal(err)
	}
	p, err := trial.Load(t.Context(), c, "", options(), with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A collected is what came of events, as text.
type collected struct {
	rows  [][]string // by sink
	dead  []string
	drops int
}

func run(t *testing.T, p *trial.Pipeline, docs ...string) (c collected) {
	t.Helper()
	in := event.Batch{Partition: "t", Range: event.Range{Count: uint64(len(docs))}}
	for _, doc := range docs {
		in.Append([]byte(doc))
	}
	c.rows = make([][]string, len(p.Sinks))
	err := p.Run(t.Context(), &in, func(_ *event.Batch, res *event.Result) error {
		for i := range res.Outputs {
			for k := range res.Outputs[i].Len() {
				c.rows[i] = append(c.rows[i], string(rowtext.AppendRow(nil, p.Sinks[i].Columns, p.Sinks[i].Documents, p.Sinks[i].Rest, &res.Outputs[i], k)))
			}
		}
		for _, d := range res.Dead {
			c.dead = append(c.dead, fmt.Sprintf("%d %s %s %s", d.Position, d.Stage, d.Sink, d.Error))
		}
		c.drops += res.Dropped
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRows passes events through script, computed columns and the conversion of both sinks.
func TestRows(t *testing.T) {
	p := load(t, `
function main(event)
  if event.drop then return nil end
  if event.audit then return to({"audit", "db"}, event) end
  return event
end`, "    computed: [{name: at, type: timestamp, func: \"make://timestamp\"}]", trial.Options{})
	p.Freeze(time.Date(2026, 11, 22, 10, 0, 0, 5000, time.UTC))
	got := run(t, p, `{"b":true,"i":7,"f":0.1,"d":12.50,"s":"ü\"","j":{"x":[1]}}`, `{"drop":true}`, `{"audit":1}`, `{"i":"many"}`, `{"i":3000000000}`, `{`)
	want := []string{
		`{"b":true,"i":7,"f":0.1,"d":12.50,"s":"ü\"","at":"2026-11-22T10:00:00.000005Z","j":{"x":[1]}}`,
		`{"b":null,"i":null,"f":null,"d":null,"s":null,"at":"2026-11-22T10:00:00.000005Z","j":null}`,
	}
	if !slices.Equal(got.rows[0], want) {
		t.Errorf("rows of db are\n%s\nwant\n%s", strings.Join(got.rows[0], "\n"), strings.Join(want, "\n"))
	}
	if want := []string{`{"audit":1,"at":"2026-11-22T10:00:00.000005Z"}`}; !slices.Equal(got.rows[1], want) {
		t.Errorf("rows of audit are %s, want %s", got.rows[1], want)
	}
	if got.drops != 1 {
		t.Errorf("%d events were dropped, want 1", got.drops)
	}
	if len(got.dead) != 3 {
		t.Fatalf("dead letters are %q, want 3", got.dead)
	}
	for i, prefix := range []string{"3 column db ", "4 column db ", "5 parse  "} {
		if !strings.HasPrefix(got.dead[i], prefix) {
			t.Errorf("dead letter %q, want %q", got.dead[i], prefix)
		}
	}
}

// TestMaxEvent keeps an event that is too large from the script.
func TestMaxEvent(t *testing.T) {
	p := load(t, "function main(event) return event end", "    max_event: 100B", trial.Options{})
	got := run(t, p, `{"s":"`+strings.Repeat("x", 200)+`"}`, `{"s":"a"}`)
	if len(got.dead) != 1 || !strings.Contains(got.dead[0], "more than max_event") || len(got.rows[0]) != 1 {
		t.Errorf("got %+v, want a row, and a dead letter about max_event", got)
	}
}

// TestReplace replaces a function that the program has, one that it lacks, and a standard one.
func TestReplace(t *testing.T) {
	p := load(t, `
local geo, mail, hash = require "geo", require "mail", require "hash"
function main(event)
  local sent, why = pcall(mail.send)
  return {s = table.concat({geo.lookup(), sent and "sent" or why:match("nothing replaces it") , #hash.md5("a")}, ",")}
end`, "", trial.Options{Functions: []string{"mail.send", "geo.lookup", "hash.md5"}})
	expect := func(want string) {
		t.Helper()
		if got := run(t, p, `{}`).rows[0]; len(got) != 1 || !strings.Contains(got[0], `"s":"`+want+`"`) {
			t.Errorf("rows %s, want %s", got, want)
		}
	}
	expect("the real one,nothing replaces it,32")
	constant := func(v any) script.Func {
		return func(context.Context, []any) ([]any, error) { return []any{v}, nil }
	}
	p.Replace(map[string]script.Func{"geo.lookup": constant("DE"), "mail.send": constant(true), "hash.md5": constant("short")})
	expect("DE,sent,5")
	p.Replace(nil)
	expect("the real one,nothing replaces it,32")
}

// TestLog takes the lines of the code, and none of the engine's.
func TestLog(t *testing.T) {
	p := load(t, `
local log = require "log"
function main(event) log.warn("n is", event.n) print "second" return event end`, "", trial.Options{})
	p.TakeLog()
	run(t, p, `{"n":1}`)
	lines, more := p.TakeLog()
	if len(lines) != 2 || more != 0 || lines[0].Text != "n is\t1" || lines[0].Level.String() != "WARN" || lines[1].Text != "second" || !strings.Contains(lines[0].At, ":2") {
		t.Errorf("lines %+v, %d more", lines, more)
	}
	if lines, _ := p.TakeLog(); len(lines) > 0 {
		t.Errorf("the lines are there again: %+v", lines)
	}
}

// TestCode runs another version of the script.
func TestCode(t *testing.T) {
	other := script.Code{Name: "other.lua", Text: []byte(`function main(event) return {s = "other"} end`)}
	p := load(t, "function main(event) return event end", "", trial.Options{Code: &other})
	if got := run(t, p, `{}`).rows[0]; len(got) != 1 || !strings.Contains(got[0], `"s":"other"`) {
		t.Errorf("rows %s", got)
	}
}

// TestCall calls functions with arguments and results of every kind.
func TestCall(t *testing.T) {
	p := load(t, `
lib = {twice = function(x) return 2 * x end}
function swap(a, b) return b, a end
function nothing() end
function keys(t) local n = 0 for _ in pairs(t) do n = n + 1 end return n, #t end
function fail() error({code = 1}) end
local function hidden() end
function main(event) return event end
return {exported = function() return "exported" end}`, "", trial.Options{})
	functions, err := p.LoadCallable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer functions.Close()
	for _, test := range []struct{ function, arguments, want string }{
		{"lib.twice", `[21]`, `[42]`}, {"swap", `[null,"a"]`, `["a",null]`}, {"nothing", `[]`, `[]`}, {"keys", `[[1,2,3]]`, `[3,3]`},
		{"keys", `[{"a":1}]`, `[1,0]`}, {"exported", `[]`, `["exported"]`}, {"main", `[{"a":null}]`, `[{"a":null}]`},
	} {
		var arguments []json.RawMessage
		if err := json.Unmarshal([]byte(test.arguments), &arguments); err != nil {
			t.Fatal(err)
		}
		results, err := functions.Call(t.Context(), test.function, arguments)
		if results == nil {
			results = []json.RawMessage{}
		}
		if got, _ := json.Marshal(results); err != nil || string(got) != test.want {
			t.Errorf("%s(%s) returned %s, %v, want %s", test.function, test.arguments, got, err, test.want)
		}
	}
	for function, want := range map[string]string{
		"fail": "code", "hidden": "the script has no function hidden", "lib.thrice": "no function lib.thrice", "lib.twice.x": "no function",
	} {
		_, err := functions.Call(t.Context(), function, nil)
		if fault, ok := errors.AsType[*script.Error](err); !ok || !strings.Contains(fault.Message, want) {
			t.Errorf("%s returned the error %v, want one of the script with %q", function, err, want)
		}
	}
}

// TestLimit ends an event and a call that loop.
func TestLimit(t *testing.T) {
	p := load(t, "function main(event) while event.loop do end return event end", "", trial.Options{})
	got := run(t, p, `{"loop":true}`, `{"i":1}`)
	if len(got.dead) != 1 || !strings.Contains(got.dead[0], "time limit") || len(got.rows[0]) != 1 {
		t.Errorf("got %+v, want a row, and a dead letter about the time limit", got)
	}
}

// TestIsolated loads a script that the configuration isolates, in a program that starts no workers.
func TestIsolated(t *testing.T) {
	c := &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{{
		Name: "p", Source: config.Source{Kind: "generate", Settings: map[string]any{"events": 1}}, Sinks: []config.Sink{{Kind: "stdout"}},
		Script: &config.Script{Text: "function main(event) event.n = 1 return event end", Isolate: config.IsolateProcess},
	}}}
	p, err := trial.Load(t.Context(), c, "p", options(), trial.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := run(t, p, `{}`).rows[0]; len(got) != 1 || got[0] != `{"n":1}` {
		t.Errorf("rows %s", got)
	}
	if c.Pipelines[0].Script.Isolate == "" {
		t.Error("the configuration was changed")
	}
}

// TestPipelines names a pipeline that does not exist.
func TestPipelines(t *testing.T) {
	c := &config.Config{Data: t.TempDir(), Pipelines: []config.Pipeline{{Name: "orders"}, {Name: "mails"}}}
	if _, err := engine.FindPipeline(c, "order"); err == nil || event.HintOf(err) != `did you mean "orders"? known: mails, orders` {
		t.Errorf("error %v, hint %q", err, event.HintOf(err))
	}
	if _, err := engine.FindPipeline(c, ""); err == nil || event.HintOf(err) != "name one: orders, mails" {
		t.Errorf("error %v, hint %q", err, event.HintOf(err))
	}
}
