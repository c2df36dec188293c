package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/internal/scaffold"
	"github.com/perigeedb/perigee/sink"
)

// runWith runs a command in this process and returns its output and exit code.
func runWith(in string, args ...string) (out string, code int) {
	var both strings.Builder
	code = perigee(args, console{in: strings.NewReader(in), out: &both, err: &both, lookup: func(string) (string, bool) { return "", false }})
	return both.String(), code
}

// TestInitPairs makes a project of every source and every sink, and checks it.
func TestInitPairs(t *testing.T) {
	kinds := linked()
	var sources, sinks []string
	for _, k := range kinds.Sources {
		sources = append(sources, k.Name)
	}
	for _, k := range kinds.Sinks {
		sinks = append(sinks, k.Name)
	}
	slices.Sort(sources)
	if !slices.Equal(sources, scaffold.Sources()) {
		t.Errorf("init knows the sources %v, and the binary has %v", scaffold.Sources(), sources)
	}
	for _, sink := range sinks {
		if !slices.Contains(scaffold.Sinks(), sink) {
			t.Errorf("init does not know the sink %s", sink)
		}
	}
	for _, source := range sources {
		for _, sink := range sinks {
			folder := filepath.Join(t.TempDir(), "a project")
			out, code := runWith("", "init", folder, "--source", source, "--sink", sink)
			if code != 0 {
				t.Fatalf("init %s %s exits with %d: %s", source, sink, code, out)
			}
			if checked, code := runWith("", "check", filepath.Join(folder, "pipeline.yaml")); code != 0 || !strings.HasSuffix(checked, "\nok\n") || strings.Contains(checked, "warning") {
				t.Errorf("check of %s and %s exits with %d: %s", source, sink, code, checked)
			}
			if again, code := runWith("", "init", folder); code != 1 || !strings.Contains(again, "already exists") {
				t.Errorf("a second init exits with %d: %s", code, again)
			}
		}
	}
}

// awkward are events whose names and values are hard to quote.
const awkward = `[
  {"id": 1, "event": "it's \"quoted\" \\ ${HOME} #1", "at": 1763805600123, "on": true, "a b": {"$x": 1, "é": "é"}, "'": 1, "{": 2, "- y": 3, "select": "x", "big": 18446744073709551616,
   "Id2": 1, "id2": 2, "a.b": 1, "": 1, "tab\tkey": 1, "list": [{"x": 1}], "long": "` + "0123456789" + `"},
  {"id": 2, "event": null, "at": 1763805601123, "on": false, "a b": {"$x": 2}, "big": 1.5}
]`

// TestInitFrom makes projects of awkward events and checks them, for each sink with columns, from a
// file and from standard input. The script passes the events on as they came.
func TestInitFrom(t *testing.T) {
	for _, kind := range []string{"eventstore", "mysql", "postgres", "stdout"} {
		if !slices.ContainsFunc(linked().Sinks, func(k sink.Kind) bool { return k.Name == kind }) {
			continue
		}
		folder := filepath.Join(t.TempDir(), "orders")
		if out, code := runWith(awkward, "init", folder, "--sink", kind, "--from", "-"); code != 0 {
			t.Fatalf("init for %s exits with %d: %s", kind, code, out)
		}
		if out, code := runWith("", "check", filepath.Join(folder, "pipeline.yaml")); code != 0 {
			t.Errorf("check for %s exits with %d: %s", kind, code, out)
		}
		events, err := os.ReadFile(filepath.Join(folder, "events.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		if out, code := runWith(string(events), "eval", filepath.Join(folder, "orders.lua")); code != 0 || !strings.HasPrefix(out, string(events)) {
			t.Errorf("eval exits with %d and prints\n%s\nwant\n%s", code, out, events)
		}
	}
	for in, want := range map[string]string{
		"": "standard input has no event", "no json": "an event must start with {", "1\n": "not a JSON object", "[{\"a\":1},": "ends too early",
	} {
		folder := t.TempDir()
		if out, code := runWith(in, "init", folder, "--from", "-"); code != 1 || !strings.Contains(out, want) {
			t.Errorf("init from %q exits with %d: %s", in, code, out)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("init from %q leaves %v, %v", in, left, err)
		}
	}
}
