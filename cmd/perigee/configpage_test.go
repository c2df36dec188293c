package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/pipeline"
)

// update writes pages that are printed from code: go test ./cmd/perigee -run Page -update
var update = flag.Bool("update", false, "write the pages that are printed from code")

// comparePage compares all that follows a mark in a page with the printed text.
func comparePage(t *testing.T, name, mark, want string) {
	t.Helper()
	path := "../../docs/reference/" + name
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written, printed, found := strings.Cut(string(page), mark)
	if !found {
		t.Fatalf("%s has no line %q", path, mark)
	}
	if printed == want {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(written+mark+want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s differs from the code: run tools/go.sh test ./cmd/perigee -run %s -update", path, t.Name())
}

// TestConfigurationPage compares the reference of keys with the code.
func TestConfigurationPage(t *testing.T) {
	needsStore(t)
	keys := linked().Describe()
	var b strings.Builder
	section := func(heading, doc string, fields []config.Field) {
		fmt.Fprintf(&b, "\n## %s\n", heading)
		if doc != "" {
			fmt.Fprintf(&b, "\n%s\n", doc)
		}
		if len(fields) == 0 {
			b.WriteString("\nNo keys: write `{}`.\n")
			return
		}
		b.WriteString("\n| key | type | unit | default | example | since | meaning |\n|---|---|---|---|---|---|---|\n")
		keyRows(&b, "", fields)
	}
	var top, tables, computed []config.Field
	for _, f := range withoutPipeline(keys.Keys) {
		switch f.Key {
		case "tables":
			tables = f.Fields
		case "computed":
			computed = f.Fields
		}
		if f.Key == "tables" || f.Key == "computed" || f.Key == "functions" {
			f.Fields = nil
		}
		top = append(top, f)
	}
	section("The configuration", "", top)
	section("Computed columns and functions", "Keys of an item of `computed` and of `functions`; see [computed columns](computed-columns.md).", computed)
	section("A table", "Keys below `tables: {NAME: …}`; see [tables](tables.md).", withoutFields(tables, "computed"))
	section("A pipeline", "Keys below `pipelines: {NAME: …}`. A name has up to 64 letters, digits and `_`, `.`, `-`.", withoutFields(keys.Pipeline(), "computed", "script"))
	section("A script", "Keys below `script`, when it is a mapping. The key `"+keys.Languages[0].Name+"`, or the name of another language, has the code.", config.Fields(config.ScriptSettings{}))
	section("One of several sinks", "Keys below `sinks: {NAME: …}`, beside the kind.", config.SinkKeys())
	for _, k := range keys.Sources {
		section("Source "+k.Name, k.Doc, k.Fields)
	}
	for i, k := range keys.Sinks {
		section("Sink "+k.Name, fmt.Sprintf("%s Guarantee: %s.", k.Doc, linked().Sinks[i].Guarantee), k.Fields)
	}
	comparePage(t, "configuration.md", "## The keys\n", b.String())
}

// needsStore skips a test of a binary without the event store, whose kinds are fewer.
func needsStore(t *testing.T) {
	t.Helper()
	if eventservice.Functions() == nil {
		t.Skip("the event store needs cgo")
	}
}

// withoutFields returns fields without the keys below some of them.
func withoutFields(fields []config.Field, keys ...string) []config.Field {
	var all []config.Field
	for _, f := range fields {
		for _, key := range keys {
			if f.Key == key {
				f.Fields = nil
			}
		}
		all = append(all, f)
	}
	return all
}

// keyRows prints a row for each key, and after it those of the keys below it.
func keyRows(b *strings.Builder, prefix string, fields []config.Field) {
	code := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + strings.ReplaceAll(text, "|", "\\|") + "`"
	}
	for _, f := range fields {
		value := defaultOf(f)
		if f.HasDefault() || f.Env != "" {
			value = code(value)
		}
		kind := f.Kind
		if f.Required {
			kind += ", required"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s | %s | %s | %s |\n", prefix, f.Key, kind, unitOf(f), value, code(f.ExampleOf()), f.Since, strings.ReplaceAll(f.Help, "|", "\\|"))
		below := prefix + f.Key + "."
		if strings.HasPrefix(f.Kind, "list of ") {
			below = prefix + f.Key + "[]."
		}
		keyRows(b, below, f.Fields)
	}
}

// unitOf returns the unit of a key's numbers. Times and sizes name theirs in the value.
func unitOf(f config.Field) string {
	switch f.Kind {
	case "duration", "duration or off":
		return "time"
	case "size":
		return "bytes"
	case "percentage":
		return "percent"
	}
	return f.Unit
}

// TestKeysAreDescribed: each key has a meaning, and an example and a default that the decoder takes.
func TestKeysAreDescribed(t *testing.T) {
	var check func(path string, fields []config.Field)
	check = func(path string, fields []config.Field) {
		for _, f := range fields {
			name := path + f.Key
			if f.Help == "" {
				t.Errorf("%s has no help", name)
			}
			if f.ExampleOf() == "" && len(f.Fields) == 0 {
				t.Errorf("%s has no example", name)
			}
			if f.Kind == "integer" && f.Unit == "" && f.Key != "seed" && f.Key != "db" {
				t.Errorf("%s has no unit", name)
			}
			for _, value := range []string{f.ExampleOf(), f.Default} {
				if value == "" || value == f.Default && !f.HasDefault() || f.Kind == "source" || f.Kind == "sink" || f.Kind == "script" {
					continue
				}
				if err := f.Check(value); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			check(name+".", f.Fields)
		}
	}
	keys := linked().Describe()
	check("", keys.Keys)
	check("sinks.", config.SinkKeys())
	for _, group := range [][]config.Kind{keys.Sources, keys.Sinks, keys.Languages} {
		for _, k := range group {
			check(k.Name+".", k.Fields)
		}
	}
}

// TestDefaultsOfKeys compares described defaults with the constants of the code.
func TestDefaultsOfKeys(t *testing.T) {
	keys := linked().Describe()
	find := func(fields []config.Field, path ...string) (found config.Field) {
		for _, key := range path {
			for _, f := range fields {
				if f.Key == key {
					found = f
				}
			}
			fields = found.Fields
		}
		return found
	}
	for _, c := range []struct {
		f    config.Field
		want any
	}{
		{find(keys.Keys, "data"), config.DefaultData},
		{find(keys.Keys, "http"), defaultHTTP},
		{find(keys.Keys, "reload"), config.DefaultReload},
		{find(keys.Keys, "query", "time"), catalog.DefaultQueryTime},
		{find(keys.Keys, "query", "memory"), catalog.DefaultQueryMemory},
		{find(keys.Pipeline(), "lanes"), pipeline.DefaultLanes},
		{find(keys.Pipeline(), "lease"), pipeline.DefaultLease},
		{find(keys.Pipeline(), "batch", "events"), engine.DefaultBatchEvents},
		{find(keys.Pipeline(), "batch", "bytes"), engine.DefaultBatchBytes},
		{find(keys.Pipeline(), "max_event"), engine.DefaultMaxEvent},
	} {
		want := fmt.Sprint(c.want)
		if size, ok := c.want.(int); ok && c.f.Kind == "size" {
			want = fmt.Sprintf("%dMiB", size>>20)
		} else if d, ok := c.want.(time.Duration); ok {
			want = d.String()
		}
		if c.f.Default != want {
			t.Errorf("%s has the default %q, and the code %q", c.f.Key, c.f.Default, want)
		}
	}
}
