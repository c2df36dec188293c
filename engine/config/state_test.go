package config

import (
	"strings"
	"testing"
	"time"
)

func TestArchive(t *testing.T) {
	read := func(archive string) *Pipeline {
		t.Helper()
		c, err := Parse("c.yaml", `
pipelines:
  p:
    source: {file: {path: a}}
    script: {lua: x}
    state: {name: users`+archive+`}
    sink: {stdout: {}}
`, known, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &c.Pipelines[0]
	}
	none, seven, thirty := read(""), read(", archive: {to: a}"), read(", archive: {to: a, keep: 30d}")
	if none.State.Archive != (Archive{}) {
		t.Errorf("without an archive: %+v", none.State.Archive)
	}
	if got, want := seven.State.Archive, (Archive{"a", 7 * 24 * time.Hour}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := thirty.State.Archive, (Archive{"a", 30 * 24 * time.Hour}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if none.Equal(seven) || seven.Equal(thirty) || !seven.Equal(read(", archive: {to: a}")) {
		t.Error("pipelines with other archives are equal, or those with the same are not")
	}
	literal := *thirty.State
	if got := literal.toNode().get("archive"); got == nil || got.value.get("to").value.text != "a" {
		t.Errorf("the archive of a literal is %+v", got)
	}
}

func TestReads(t *testing.T) {
	const users = `
  users:
    source: {file: {path: a}}
    script: {lua: x}
    state: {name: users, scope: pipeline}
    sink: {stdout: {}}
  parts:
    source: {file: {path: a}}
    script: {lua: x}
    state: {name: parts}
    sink: {stdout: {}}
`
	parse := func(reader string) (*Config, error) {
		return Parse("c.yaml", "pipelines:"+users+`
  reader:
    source: {file: {path: b}}
    sink: {stdout: {}}
`+reader, known, nil)
	}
	c, err := parse("    script: {lua: x}\n    reads: [users]\n")
	if err != nil {
		t.Fatal(err)
	}
	if reads := c.Pipelines[2].Reads; len(reads) != 1 || reads[0] != "users" || !c.Pipelines[0].State.IsRead || c.Pipelines[1].State.IsRead {
		t.Errorf("got reads %q of the states %+v and %+v", reads, c.Pipelines[0].State, c.Pipelines[1].State)
	}
	none, err := parse("    script: {lua: x}\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Pipelines[2].Equal(&none.Pipelines[2]) || c.Pipelines[0].Equal(&none.Pipelines[0]) {
		t.Error("a pipeline that reads a state, or whose state is read, equals one that does not")
	}
	for _, test := range []struct{ reader, want string }{
		{"    script: {lua: x}\n    reads: [user]\n", `c.yaml:17:12: pipeline reader reads an unknown state "user"`},
		{"    script: {lua: x}\n    reads: [parts]\n", "c.yaml:17:12: pipeline reader reads the state parts, which each partition has its own part of"},
		{"    script: {lua: x}\n    reads: [users, users]\n", "c.yaml:17:12: pipeline reader reads the state users twice"},
		{"    script: {lua: x}\n    state: {name: own, scope: pipeline}\n    reads: [own]\n", "c.yaml:18:12: pipeline reader reads its own state own"},
		{"    script: {lua: x, isolate: process}\n    reads: [users]\n", "c.yaml:17:5: pipeline reader reads a state, which a script in a process of its own cannot reach"},
		{"    reads: [users]\n", "c.yaml:16:5: pipeline reader reads a state and has no script"},
		{"    script: {lua: x.so}\n    reads: [users]\n", "c.yaml:17:5: pipeline reader reads a state, which a Go plugin cannot reach"},
		{"    script: {lua: x}\n    shadow: {script: y, sample: 10%}\n    reads: [users]\n", "c.yaml:18:5: pipeline reader reads a state, which a shadow cannot reach"},
	} {
		if _, err := parse(test.reader); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.reader, err, test.want)
		}
	}
	literal := &Config{Pipelines: []Pipeline{{
		Name: "reader", Source: Source{Kind: "file", Settings: map[string]any{"path": "a"}}, Script: &Script{Language: "lua", Text: "x"},
		Sinks: []Sink{{Kind: "stdout"}}, Reads: []string{"users"},
	}}}
	if _, err := literal.Resolve(known); err == nil || !strings.Contains(err.Error(), `pipeline reader reads an unknown state "users"`) {
		t.Errorf("the literal: %v", err)
	}
}

// TestEqualStates holds Equal to every key of a state: a reload restarts a pipeline for each.
func TestEqualStates(t *testing.T) {
	read := func(keys string) *Pipeline {
		t.Helper()
		c, err := Parse("c.yaml", `
pipelines:
  p:
    source: {file: {path: a}}
    script: {lua: x}
    state: {name: users`+keys+`}
    sink: {stdout: {}}
`, known, nil)
		if err != nil {
			t.Fatalf("%s: %v", keys, err)
		}
		return &c.Pipelines[0]
	}
	base := ", time: event, field: at"
	all := []string{
		"", ", version: 2", ", scope: pipeline", ", standby: 1", ", archive: {to: a}", ", archive: {to: a, keep: 1d}",
		base, ", time: event, field: seen", base + ", unit: ms", base + ", lateness: 1m", base + ", idle: 1m",
	}
	for i, one := range all {
		if !read(one).Equal(read(one)) {
			t.Errorf("state: {name: users%s} differs from itself", one)
		}
		for _, other := range all[:i] {
			if read(one).Equal(read(other)) {
				t.Errorf("state: {name: users%s} and {name: users%s} are equal", one, other)
			}
		}
	}
}
