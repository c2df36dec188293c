package scripttest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// TestTrial tests script.Trial, which every Lua engine honours in its own process.
func TestTrial(t *testing.T, lang script.Language) {
	t.Run("clock", func(t *testing.T) { testClock(t, lang) })
	t.Run("replace", func(t *testing.T) { testReplace(t, lang) })
	t.Run("coverage", func(t *testing.T) { testCoverage(t, lang) })
	t.Run("log", func(t *testing.T) { testWholeLog(t, lang) })
}

// testClock moves the clock between two runs of one script: all that reads it must follow.
func testClock(t *testing.T, lang script.Language) {
	var now atomic.Int64
	trial := &script.Trial{Now: func() time.Time { return time.UnixMicro(now.Load()) }}
	s := load(t, lang, `
local time = require "time"
function main(event)
  return {time.now(), time.unix(), os.time(), os.date("!%Y"), os.clock() >= 0}
end`, script.Options{Trial: trial, ReturnsValue: true})
	for at, want := range map[int64]string{
		1_000_000_000_250_000: `[1000000000.25,1000000000,1000000000,"2001",true]`,
		0:                     `[0,0,0,"1970",true]`,
	} {
		now.Store(at)
		if got := string(run(t, s, `{}`).Outputs[0].Doc(0)); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
}

// testReplace replaces functions that wait, that compute, and of the standard modules, and restores
// them.
func testReplace(t *testing.T, lang script.Language) {
	var replaced atomic.Bool
	trial := &script.Trial{Replace: func(function string) script.Func {
		if !replaced.Load() {
			return nil
		}
		switch function {
		case "host.wait", "host.add", "hash.md5", "os.time":
			return func(context.Context, []any) ([]any, error) { return []any{function}, nil }
		case "host.echo":
			return func(context.Context, []any) ([]any, error) { return nil, errors.New("no echo") }
		}
		return nil
	}}
	s := load(t, lang, `
local host, hash = require "host", require "hash"
function main(event)
  local echoed, message = pcall(host.echo, 1)
  return {host.wait(0), host.add(1, 2), #hash.md5("x"), type(os.time()), echoed, message ~= 1 and message:match "host.*" or message}
end`, script.Options{Trial: trial, Modules: []script.Module{host()}, ReturnsValue: true})
	for _, step := range []struct {
		replaced bool
		want     string
	}{{false, `[0,3,32,"number",true,1]`}, {true, `["host.wait","host.add",8,"string",false,"host.echo: no echo"]`}, {false, `[0,3,32,"number",true,1]`}} {
		replaced.Store(step.replaced)
		if got := string(run(t, s, `{}`).Outputs[0].Doc(0)); got != step.want {
			t.Errorf("replaced %t: %s, want %s", step.replaced, got, step.want)
		}
	}
}

// testCoverage compares the lines that ran, in the script, in a file that it requires, in a
// coroutine, and before a limit ended the VM.
func testCoverage(t *testing.T, lang script.Language) {
	coverage := new(script.Coverage)
	text := `local helper = require "helper"
local function double(x)
  return 2 * x
end
function main(event)
  if event.n == 1 then
    event.n = double(event.n)
  elseif event.n == 2 then
    event.n = helper.never()
  end
  if event.spin then
    event.m = 1
    while true do end
  end
  coroutine.wrap(function()
    event.inside = true
  end)()
  return event
end
`
	files := map[string]string{"helper.lua": "local helper = {}\nfunction helper.never()\n  return 1\nend\nreturn helper\n"}
	s, err := lang.Load(t.Context(), script.Code{Name: scriptName, Text: []byte(text), Files: func(path string) ([]byte, error) {
		return []byte(files[path]), nil
	}}, script.Options{Sinks: []script.Sink{{}}, Trial: &script.Trial{Coverage: coverage}, Limits: script.Limits{EventTime: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ran := func(file string, lines ...int) (missing []int) {
		for _, line := range lines {
			if !slices.Contains(coverage.Lines(file), line) {
				missing = append(missing, line)
			}
		}
		return missing
	}
	run(t, s, `{"n":1}`)
	if missing := ran(scriptName, 1, 6, 7, 3, 11, 15, 16, 18); len(missing) > 0 {
		t.Errorf("lines %d ran and are not covered", missing)
	}
	if missing := ran(scriptName, 9, 12, 13); len(missing) < 3 {
		t.Errorf("of lines 9, 12 and 13, which did not run, only %d are not covered", missing)
	}
	if missing := ran("helper.lua", 1, 5, 3); !slices.Equal(missing, []int{3}) {
		t.Errorf("of a required file, lines %d are not covered, want 3", missing)
	}
	run(t, s, `{"spin":true}`)
	if missing := ran(scriptName, 12, 13); len(missing) > 0 {
		t.Errorf("lines %d ran until a limit and are not covered", missing)
	}
	if files := coverage.Files(); !slices.Equal(files, []string{scriptName, "helper.lua"}) {
		t.Errorf("files %q are covered", files)
	}
}

// testWholeLog logs more lines than a pipeline may.
func testWholeLog(t *testing.T, lang script.Language) {
	const lines = 1000
	var out bytes.Buffer
	s := load(t, lang, `local log = require "log" function main(event) for i = 1, 1000 do log.info("line") end return event end`,
		script.Options{Trial: &script.Trial{}, Limits: script.Limits{EventTime: time.Minute, BatchTime: time.Minute}, Log: slog.New(slog.NewTextHandler(&out, nil))})
	run(t, s, `{}`)
	if got := strings.Count(out.String(), "msg=line"); got != lines {
		t.Errorf("%d of %d lines are logged", got, lines)
	}
}
