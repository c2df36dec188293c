package scaffold

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/script/luasyntax"
)

// fromEvents makes a project for lines of events.
func fromEvents(t *testing.T, sink, events string) *Project {
	t.Helper()
	x := inspect.New()
	var first [][]byte
	for line := range strings.Lines(events) {
		line = strings.TrimSpace(line)
		x.Add([]byte(line))
		first = append(first, []byte(line))
	}
	return From("orders", "file", sink, x.Report(), first)
}

func (p *Project) file(t *testing.T, path string) string {
	t.Helper()
	files, err := p.Files()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("no file %s", path)
	}
	return files[i].Text
}

const orders = `{"order id":1,"kind":"paid","at":1763805600123,"customer":{"id":7,"name":{"first":"Ada","more":{"deep":1}}},"price":12.50,"total":123456789012345678901234.55,"tags":["a"],"note":null,"1st":true,"no":1,"NO":2,"a.b":3,"mixed":1}
{"order id":2,"kind":"sent","at":1763805601123,"customer":{"id":8},"price":3,"total":1,"tags":[],"note":null,"1st":false,"no":1,"mixed":{"x":1}}`

func TestColumns(t *testing.T) {
	for sink, want := range map[string]string{
		"eventstore": `tables:
  orders:
    event: kind
    time: at
    time_unit: ms
    columns:
      - {name: order_id, type: int64, field: 'order id'}
      - {name: kind, type: string}
      - {name: customer_id, type: int64, field: customer.id}
      - {name: customer_name_first, type: string, field: customer.name.first}
      - {name: customer_name_more, type: json, field: customer.name.more}
      - {name: price, type: float64}
      - {name: total, type: "decimal(38,2)"}
      - {name: tags, type: json}
      - {name: note, type: json}
      - {name: _1st, type: bool, field: '1st'}
      - {name: 'no', type: int64}
      - {name: mixed, type: json}
pipelines:
  orders:
    source:
      file: {path: events.ndjson}
    script: orders.lua
    sink:
      eventstore: {table: orders}
`,
		"mysql": `        columns:
          - {name: order_id, type: int64, field: 'order id', sql: "BIGINT"}
          - {name: kind, type: string, sql: "VARCHAR(64)"}
          - {name: at, type: int64, sql: "BIGINT"}
          - {name: customer_id, type: int64, field: customer.id, sql: "BIGINT"}
          - {name: customer_name_first, type: string, field: customer.name.first, sql: "VARCHAR(64)"}
          - {name: customer_name_more, type: json, field: customer.name.more, sql: "JSON"}
          - {name: price, type: float64, sql: "DOUBLE"}
          - {name: total, type: decimal, sql: "DECIMAL(38,2)"}
          - {name: tags, type: json, sql: "JSON"}
          - {name: note, type: json, sql: "JSON"}
          - {name: _1st, type: bool, field: '1st', sql: "BOOLEAN"}
          - {name: 'no', type: int64, sql: "BIGINT"}
          - {name: mixed, type: json, sql: "JSON"}
`,
		"postgres": `          - {name: price, type: float64, sql: "DOUBLE PRECISION"}
          - {name: total, type: decimal, sql: "NUMERIC(38,2)"}
          - {name: tags, type: json, sql: "JSONB"}
`,
	} {
		got := fromEvents(t, sink, orders).file(t, "pipeline.yaml")
		if !strings.Contains(got, want) {
			t.Errorf("%s (-want +got):\n%s", sink, cmp.Diff(want, got))
		}
	}
}

func TestTextLengths(t *testing.T) {
	for length, want := range map[int]string{1: "VARCHAR(64)", 32: "VARCHAR(64)", 33: "VARCHAR(255)", 500: "VARCHAR(1000)", 2000: "VARCHAR(4000)", 2001: "MEDIUMTEXT"} {
		if got := mysqlDialect.typeOf(column{kind: event.String, longest: length}); got != want {
			t.Errorf("%d characters go into %s, want %s", length, got, want)
		}
	}
}

// TestManyDigits keeps a number that no decimal holds.
func TestManyDigits(t *testing.T) {
	for _, number := range []string{strings.Repeat("9", 40), "1.5e400", "0." + strings.Repeat("3", 39)} {
		if got := fromEvents(t, "mysql", `{"n":`+number+`}`).columns(); got[0].kind != event.JSON {
			t.Errorf("%s goes into %s", number, got[0].kind)
		}
	}
}

// TestTimeOfSome does not make a column the table's time that an event lacks: it would be rejected.
func TestTimeOfSome(t *testing.T) {
	for _, events := range []string{`{"time":"2026-11-22T10:00:00Z"}` + "\n" + `{"a":1}`, `{"time":"2026-11-22T10:00:00Z"}` + "\n" + `{"time":null}`} {
		if got := fromEvents(t, "eventstore", events).file(t, "pipeline.yaml"); strings.Contains(got, "time: time") || !strings.Contains(got, "{name: time, type: timestamp}") {
			t.Errorf("%s makes\n%s", events, got)
		}
	}
}

// TestLongNumbers expects no documents of a test that YAML would read with fewer digits.
func TestLongNumbers(t *testing.T) {
	for events, want := range map[string]bool{`{"n":18446744073709551616}`: false, `{"n":0.1234567890123456789}`: false, `{"n":9007199254740993}`: true} {
		if got := fromEvents(t, "stdout", events).file(t, "pipeline_test.yaml"); strings.Contains(got, "documents:") != want {
			t.Errorf("%s makes\n%s", events, got)
		}
	}
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		"orders": "orders", "My Orders-2026": "my_orders_2026", "2026": "events_2026", "": "events", "é": "events", "select": "events_select",
		"duckdb_x": "events_duckdb_x", "--x--": "x", strings.Repeat("ab-", 30): strings.TrimSuffix(strings.Repeat("ab_", 14)[:40], "_"),
	} {
		if got := Name(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"id": "id", "user.id": "user.id", "on": "'on'", "No": "'No'", "1st": "'1st'", "a b": "'a b'", "it's": "'it''s'", "${HOME}": "'$${HOME}'", "": "''", "é": "'é'",
	} {
		if got := quote(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}

// TestScripts parses the scripts of events with names that are hard to quote.
func TestScripts(t *testing.T) {
	for _, value := range []string{`open`, `a"b\c`, "two\nlines", "]] --", "\x00\x7f", "日本"} {
		doc, err := json.Marshal(map[string]string{"event": value})
		if err != nil {
			t.Fatal(err)
		}
		p := fromEvents(t, "stdout", string(doc))
		text := p.file(t, "orders.lua")
		if _, err := luasyntax.Parse(strings.NewReader(text), "orders.lua"); err != nil {
			t.Errorf("%q: %v in\n%s", value, err, text)
		}
		if active := strings.Replace(text, "-- if", "if", 1); active != text {
			if _, err := luasyntax.Parse(strings.NewReader(active), "orders.lua"); err != nil {
				t.Errorf("%q, with the suggestion: %v in\n%s", value, err, active)
			}
		}
	}
}

func TestExample(t *testing.T) {
	p := Example("file", "eventstore")
	if len(p.events) != EventsKept || len(p.outputs) != 8 || !strings.HasSuffix(string(p.outputs[7]), `,"domain":"example.org"}`) {
		t.Errorf("%d events, %d outputs, the last %s", len(p.events), len(p.outputs), p.outputs[len(p.outputs)-1])
	}
	for _, doc := range slices.Concat(p.events, p.outputs) {
		if !json.Valid(doc) {
			t.Errorf("%s", doc)
		}
	}
	for _, source := range Sources() {
		for _, sink := range Sinks() {
			if lines := strings.Count(Example(source, sink).readme(), "\n"); lines > 12 {
				t.Errorf("the README of %s and %s has %d lines", source, sink, lines)
			}
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	for _, p := range []*Project{Example("rediss", "stdout"), Example("redis", "sqlite")} {
		if _, err := p.Files(); err == nil || !strings.HasPrefix(event.HintOf(err), "use one of ") {
			t.Errorf("%s into %s: %v", p.Source, p.Sink, err)
		}
	}
}

// TestNothingIsOverwritten writes a project where one of its files exists, in turn each of them.
func TestNothingIsOverwritten(t *testing.T) {
	p := Example("file", "stdout")
	p.Schema = []byte("{}")
	files, err := p.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		folder := filepath.Join(t.TempDir(), "project")
		if err := writeNew(filepath.Join(folder, f.Path), "mine"); err != nil {
			t.Fatal(err)
		}
		if err := p.Write(folder); err == nil || !strings.Contains(err.Error(), f.Path+" already exists") {
			t.Errorf("%s: %v", f.Path, err)
		}
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
				t.Errorf("%s: %s is %q, %v", f.Path, path, text, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	if err := p.Write(folder); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, schemaFile)); err != nil || string(text) != "{}" {
		t.Errorf("the schema is %q, %v", text, err)
	}
	if err := writeNew(filepath.Join(folder, "README.md"), ""); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second write returns %v", err)
	}
}
