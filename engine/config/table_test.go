package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

const onePipeline = `
pipelines:
  mails:
    source: {redis: {address: "localhost:6379", list: emails}}
    sink: {stdout: {}}
`

var wantTables = []Table{
	{Name: "plain"},
	{
		Name: "events", Event: "kind", Time: "at", TimeUnit: "ms", Retention: 30*24*time.Hour + 12*time.Hour,
		Sort: []string{"kind", "user", "at"}, Bloom: []string{"user"}, Unknown: catalog.KeepUnknown,
		Columns: []Column{
			{Name: "kind", Type: "string", Required: true},
			{Name: "user", Type: "int64", Field: "user.id"},
			{Name: "price", Type: "decimal(18,2)"},
			{Name: "seen", Type: "timestamp", Unit: "text"},
		},
		Computed: []Computed{
			{Name: "cents", Type: "int64", Func: "cents.lua"},
			{Name: "day", Type: "string", Func: "days.lua", FuncName: "day"},
		},
		Unique: catalog.Unique{Key: []string{"user", "at"}, Window: catalog.Duration(36 * time.Hour), Memory: 64 << 20},
	},
}

var ignoreOrigins = cmpopts.IgnoreUnexported(Table{}, Column{}, Computed{})

func TestTables(t *testing.T) {
	c, err := Parse("perigee.yaml", `
tables:
  plain:
  events:
    event: kind
    time: at
    time_unit: ms
    retention: 30d12h
    sort: [kind, user, at]
    bloom: [user]
    unknown: keep
    unique: {key: [user, at], window: 1d12h, memory: 64MiB}
    columns:
      - {name: kind, type: string, required: true}
      - {name: user, type: int64, field: user.id}
      - {name: price, type: "decimal(18,2)"}
      - {name: seen, type: timestamp, unit: text}
    computed:
      - {name: cents, type: int64, func: cents.lua}
      - {name: day, type: string, func: days.lua, funcname: day}
`+onePipeline, known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := c.Resolve(known)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantTables, resolved.Tables, ignoreOrigins); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// TestUnknownAdd writes the default of unknown, and checks what the store gets.
func TestUnknownAdd(t *testing.T) {
	c, err := Parse("perigee.yaml", "tables: {events: {unknown: add, event: kind}}\n"+onePipeline, known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Tables[0].Unknown; got != catalog.AddUnknown {
		t.Errorf("got %q, want %q", got, catalog.AddUnknown)
	}
}

func TestTablesOfALiteral(t *testing.T) {
	literal := Config{Data: t.TempDir(), Tables: wantTables, Pipelines: []Pipeline{{
		Name: "mails", Source: Source{Kind: "file"}, Sinks: []Sink{{Kind: "stdout"}},
	}}}
	resolved, err := literal.Resolve(known)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantTables, resolved.Tables, ignoreOrigins); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	literal.Tables = []Table{{Name: "events", Unknown: "kep"}, {Name: "EVENTS"}}
	_, err = literal.Resolve(known)
	for _, want := range []string{`unknown must be one of add, keep, drop, not "kep"`, `did you mean "keep"?`, "table EVENTS is already declared as events"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func TestFunctionsOfALiteral(t *testing.T) {
	literal := Config{Data: t.TempDir(), Functions: []Computed{{Name: "a", Type: "strin", Func: "return 1"}}, Pipelines: []Pipeline{{
		Name: "mails", Source: Source{Kind: "file"}, Sinks: []Sink{{Kind: "stdout"}},
	}}}
	if _, err := literal.Resolve(known); err == nil || !strings.Contains(err.Error(), `"strin"`) {
		t.Errorf("a function of an unknown type: %v", err)
	}
}

func TestScriptOfALiteral(t *testing.T) {
	for _, want := range []Script{
		{Language: "lua", Text: "return event", Pool: Pool{Max: 2, Eager: true}},
		{Language: "lua", Text: "function handle(event) return event end", Func: "handle", Isolate: IsolateProcess},
	} {
		literal := Config{Data: t.TempDir(), Pipelines: []Pipeline{{
			Name: "mails", Source: Source{Kind: "file"}, Script: &want, Sinks: []Sink{{Kind: "stdout"}},
		}}}
		resolved, err := literal.Resolve(known)
		if err != nil {
			t.Fatal(err)
		}
		got := resolved.Pipelines[0].Script
		if got.Func != want.Func || got.Text != want.Text || got.Isolate != want.Isolate || got.Pool.Max != want.Pool.Max || got.Pool.Eager != want.Pool.Eager {
			t.Errorf("the script %+v is resolved as %+v", want, got)
		}
	}
}

func TestDaysInDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"1d": day, "0d": 0, "30d": 30 * day, "1d12h": day + 12*time.Hour, "90m": 90 * time.Minute, "106750d": 106750 * day} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"d", "-1d", "1.5d", "1dd", "1d-1h", "106752d", "106751d24h", "1h1d", "99999999999999999999d"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%s is accepted as %v", text, got)
		}
	}
}

func TestMovedKeysAreNotListed(t *testing.T) {
	for _, f := range Fields(&mysqlSettings{}) {
		if f.Key == "time" {
			t.Errorf("a moved key is listed: %+v", f)
		}
	}
}

// TestReadSchema reads the schema of a table from a separate text.
func TestReadSchema(t *testing.T) {
	read := func(t *testing.T, table, schema string) (*Table, error) {
		t.Helper()
		c, err := Parse("perigee.yaml", "tables:\n  events: "+table+"\n"+onePipeline, known, lookup)
		if err != nil {
			t.Fatal(err)
		}
		return &c.Tables[0], c.Tables[0].ReadSchema("schema.yaml", schema, known)
	}
	const schema = `
event: kind
time: at
time_unit: ms
unknown: drop
unique: {key: [kind, at], window: 10m}
columns:
  - {name: kind, type: string}
  - {name: user, type: int64, field: user.id}
`
	got, err := read(t, `{schema: schema.yaml, retention: 30d, bloom: [user], sort: [kind]}`, schema)
	if err != nil {
		t.Fatal(err)
	}
	want := &Table{
		Name: "events", Schema: "schema.yaml", Event: "kind", Time: "at", TimeUnit: "ms", Retention: 30 * 24 * time.Hour, Sort: []string{"kind"}, Bloom: []string{"user"},
		Unknown: catalog.DropUnknown, Columns: []Column{{Name: "kind", Type: "string"}, {Name: "user", Type: "int64", Field: "user.id"}},
		Unique: catalog.Unique{Key: []string{"kind", "at"}, Window: catalog.Duration(10 * time.Minute)},
	}
	if diff := cmp.Diff(want, got, ignoreOrigins); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct{ table, schema, want string }{
		"empty":                      {`{schema: s}`, "", `schema.yaml:1:1: the schema is empty`},
		"a list":                     {`{schema: s}`, "- a", `schema.yaml:1:1: the schema must be a mapping, not a list`},
		"no YAML":                    {`{schema: s}`, "a: [", `schema.yaml:1:4: not YAML`},
		"a key of the engine":        {`{schema: s}`, "retention: 1d", `schema.yaml:1:1: unknown key "retention" in the schema of table events`},
		"a key in both":              {`{schema: s, time: at}`, "columns: []\ntime: at", `schema.yaml:2:1: the configuration also sets time of table events`},
		"a type":                     {`{schema: s}`, "columns:\n  - {name: a, type: strin}", `schema.yaml:2:21: unknown type "strin" of column a`},
		"a time column":              {`{schema: s, time: at}`, "columns:\n  - {name: at, type: string}", `schema.yaml:2:6: the time column at of table events is declared as at of type string`},
		"a misspelled unit":          {`{schema: s}`, "time: at\ntime_unit: m", `schema.yaml:2:12: time_unit must be one of s, ms, us, ns, text, not "m"`},
		"a misspelled unknown":       {`{schema: s}`, "unknown: kep", `schema.yaml:1:10: unknown must be one of add, keep, drop, not "kep"`},
		"a unit without a time":      {`{schema: s}`, "time_unit: ms", `schema.yaml:1:1: time_unit of table events needs a time column`},
		"a retention without a time": {`{schema: s, retention: 1d}`, "event: a", `perigee.yaml:2:23: retention of table events needs a time column`},
		"a name in the configuration": {`{schema: s, bloom: [usr]}`, "unknown: keep\ncolumns: [{name: user, type: string}]",
			`perigee.yaml:2:31: bloom names column "usr", which is not declared`},
		"a key that is not declared": {`{schema: s, unique: {key: [b], window: 1d}}`, "columns: [{name: a, type: string}]",
			`perigee.yaml:2:38: key names column "b", which is not declared`},
		"a variable": {`{schema: s}`, "event: ${HOME}", `schema.yaml:1:8: `},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, test.table, test.schema)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestKeywordColumns declares columns that queries must write in quotes.
func TestKeywordColumns(t *testing.T) {
	c, err := Parse("perigee.yaml", `
tables:
  events:
    time: at
    event: Order
    columns:
      - {name: order, type: string}
      - {name: user, type: string}
      - {name: End, type: string, field: stop}
    computed:
      - {name: left, type: string, func: f}
`+onePipeline, known, lookup)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, fault := range c.KeywordColumns() {
		got = append(got, fmt.Sprintf("%d:%d %s (%s)", fault.Line, fault.Column, fault.Message, fault.Hint))
	}
	for i, want := range []string{
		`7:10 column order of table events has the name of an SQL keyword (write "order", with the quotes, in queries, or choose another name)`,
		`9:10 column End of table events has the name of an SQL keyword (write "End", with the quotes, in queries, or choose another name)`,
		`11:42 column left of`,
		`4:11 column at of`,
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("fault %d of %q, want %q", i, got, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d faults: %q", len(got), got)
	}
	if faults := (&Config{Tables: []Table{{Name: "t", Time: "at"}}}).KeywordColumns(); len(faults) != 1 {
		t.Errorf("a literal has the faults %v", faults)
	}
}
