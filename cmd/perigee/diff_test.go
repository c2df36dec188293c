package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDiffRunning compares the version that an engine runs with the new one: its file and module
// have changed since.
func TestDiffRunning(t *testing.T) {
	folder := shortDir(t)
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("perigee.yaml", "data: state\nhttp: off\nreload: off\npipelines:\n  a:\n"+
		"    source: {generate: {events: 1000000000, rate: 100}}\n    script: a.lua\n    sink: {stdout: {}}\n"+
		"  b:\n    source: {generate: {events: 1}}\n    sink: {stdout: {}}\n")
	file := write("a.lua", "local m = require 'm' function main(event) event.v = m return event end")
	write("m.lua", "return 'before'")
	events := write("events.ndjson", "{}\n")
	says(t, 2, "no engine", "diff", "running", file, events, "--config", config, "--pipeline", "a")

	p := runEngine(t, config)
	p.says("partition open", "pipeline=a")
	write("m.lua", "return 'after'")
	says(t, 1, `"before"                          "after"`, "diff", "running", file, events, "--config", config, "--pipeline", "a")
	write("a.lua", "function main(event) event.v = 'before' return event end")
	says(t, 0, "1 event, no difference", "diff", "running", file, events, "--config", config, "--pipeline", "a")
	says(t, 2, "pipeline b has no script", "diff", "running", file, events, "--config", config, "--pipeline", "b")
	says(t, 2, "name one with --config FILE", "diff", "running", file, events)
	p.signal(syscall.SIGTERM)
	p.ends(0)
}
