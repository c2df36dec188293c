package suite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/suite"
	"github.com/perigeedb/perigee/nodedb"
)

const statePipeline = `
data: state
pipelines:
  visits:
    source: {generate: {events: 1}}
    script: visits.lua
    state: {name: visits}
    sink: {stdout: {}}
`

const stateScript = `
local nodedb, timers, time, log, window = require "nodedb", require "timer", require "time", require "log", require "window"
local users = nodedb.node "^users"
local minutes = window.tumbling("^minutes", {seconds = 60})

function seen(user) return users[user].n:incr() end

function main(event)
  if event.price then
    minutes:add(event.user, event.price)
    return nil
  end
  event.n = seen(event.user)
  users[event.user].name.__ = event.name
  if event.fail then error "fails" end
  if event.leaves then timers.after(event.leaves, event.user) end
  return event
end

function timer(key, due)
  if key == "^minutes" then
    return minutes:completed()
  end
  if key == "eve" then error "no eve" end
  log.info("gone:", key)
  return {gone = key, n = users[key].n.__, at = time.format(time.now())}
end
`

// stateProject is project for a pipeline with a state.
func stateProject(t *testing.T, cases string) string {
	t.Helper()
	if nodedb.Version() == "" {
		t.Skip("state needs a build with cgo")
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"pipeline.yaml": statePipeline, "visits.lua": stateScript, "visits_test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "visits_test.yaml")
}

// TestState runs cases of a script with a state: each begins with none.
func TestState(t *testing.T) {
	got := runCases(t, stateProject(t, `
cases:
  - name: counts
    events: [{user: ada}, {user: ada}, {user: bob, name: Bob}]
    documents: [{user: ada, n: 1}, {user: ada, n: 2}, {user: bob, name: Bob, n: 1}]
    state: {'^users("ada","n")': 2, '^users("bob","n")': 1.0, '^users("bob","name")': Bob, '^users("eve")': null}
  - name: counts from the beginning
    events: [{user: ada}]
    state: {'^users("ada","n")': 1, '^users("bob","n")': null}
  - name: begins with each event
    each: [{user: ada}, {user: ada, name: Ada}]
    state: {'^users("ada","n")': 1}
  - name: undoes what a failed event has changed
    events: [{user: ada, fail: true}, {user: ada}]
    dead: {message: fails}
    state: {'^users("ada","n")': 1}
  - name: calls a function
    call: {function: seen, arguments: [ada], returns: 1}
    state: {'^users("ada","n")': 1}
  - name: goes when the timer is due, and not before
    now: 2026-11-28T10:00:00Z
    steps:
      - events: [{user: ada, leaves: 30}, {user: eve, leaves: 10}, {user: bob, leaves: 20.5}]
      - wait: 29.999s
      - events: [{user: ada}]
      - wait: 1ms
      - wait: 1h
    documents:
      - {user: ada, leaves: 30, n: 1}
      - {user: eve, leaves: 10, n: 1}
      - {user: bob, leaves: 20.5, n: 1}
      - {gone: bob, n: 1, at: "2026-11-28T10:00:20.5Z"}
      - {user: ada, n: 2}
      - {gone: ada, n: 2, at: "2026-11-28T10:00:30Z"}
    dead: [{stage: script, message: no eve}]
    log: ["gone:\tbob", "gone:\tada"]
  - name: has a fixed time
    steps: [{events: [{user: bob, leaves: 0}]}, {wait: 0s}]
    documents: [{user: bob, leaves: 0, n: 1}, {gone: bob, n: 1, at: "2026-01-01T00:00:00Z"}]
  - name: sums a minute
    steps:
      - events: [{user: ada, price: 2}, {user: ada, price: 3}]
      - wait: 1m
      - events: [{user: ada, price: 4}]
    subset: true
    documents: [{key: ada, count: 2, sum: 5}]
`), settings())
	if got != "ok   visits_test.yaml: 8 cases\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestStateDifferences shows nodes that have other values.
func TestStateDifferences(t *testing.T) {
	got := runCases(t, stateProject(t, `
cases:
  - name: counts
    steps: [{events: [{user: ada, name: "1"}]}, {wait: 1h}]
    state:
      '^users("ada","n")': 2
      '^users("ada","name")': 1
      '^users("bob")': 1
      '^users("ada")': null
  - name: leaves
    steps: [{events: [{user: eve, leaves: 1}]}, {wait: 1h}]
    documents: []
`), settings())
	want := `FAIL visits_test.yaml:3: counts
  state, ^users("ada","n") (line 6)
    - 2
    + 1
  state, ^users("ada","name") (line 7)
    - 1
    + "1"
  state, ^users("bob") (line 8)
    - 1
    + null
FAIL visits_test.yaml:10: leaves
  documents, row 1 (line 12)
    + {"user":"eve","leaves":1,"n":1}
  unexpected dead letter 1
    + script: visits.lua:24: no eve
FAIL visits_test.yaml: 2 of 2 cases failed
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestStateMistakes holds what wrong nodes and steps are told.
func TestStateMistakes(t *testing.T) {
	for name, test := range map[string]struct{ keys, want, hint string }{
		"a list":                {"state: [1]", `4:12: state must be a mapping of paths, not a list`, "write the path of a node and its value"},
		"a path without a ^":    {`state: {'users("ada")': 1}`, `4:13: users("ada") is a tree in memory, which ends with its event`, `begin with ^: ^users("ada")`},
		"a path that is broken": {`state: {'^users("ada"': 1}`, "4:13: ", "write the path of a node and its value"},
		"the tree of timers":    {`state: {'^%timers("key")': 1}`, `4:13: names that begin with a percent sign belong to Perigee`, "wait for them"},
		"a tree of values":      {`state: {'^users("ada")': {n: 1}}`, `4:31: the value of ^users("ada") must be text, a number, true or false, or null for none, not a mapping`, "write each node with its path"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := suite.Run(t.Context(), stateProject(t, "cases:\n  - name: a\n    events: [{user: ada}]\n    "+test.keys+"\n"), settings())
			faults, ok := errors.AsType[config.Errors](err)
			if !ok || len(faults) != 1 {
				t.Fatalf("error %v is not one of the file", err)
			}
			if _, got, _ := strings.Cut(faults[0].Error(), "visits_test.yaml:"); !strings.HasPrefix(got, test.want) || !strings.Contains(faults[0].Hint, test.hint) {
				t.Errorf("fault %q with hint %q, want %q with %q", got, faults[0].Hint, test.want, test.hint)
			}
		})
	}
}
