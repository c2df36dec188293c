package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
		Sort: []string{"kind", "user", "at"}, Bloom: []string{"user"}, Unknown: UnknownKeep,
		Columns: []Column{
			{Name: "kind", Type: "string", Required: true},
			{Name: "user", Type: "int64", Field: "user.id"},
			{Name: "price", Type: "decimal(18,2)"},
			{Name: "seen", Type: "timestamp", Unit: "text"},
		},
	},
}

var ignoreOrigins = cmpopts.IgnoreUnexported(Table{}, Column{})

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
    columns:
      - {name: kind, type: string, required: true}
      - {name: user, type: int64, field: user.id}
      - {name: price, type: "decimal(18,2)"}
      - {name: seen, type: timestamp, unit: text}
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
	for _, want := range []string{`unknown must be one of add, keep, drop, not "kep"`, `did you mean "keep"?`, "table EVENTS is declared before as events"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
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
