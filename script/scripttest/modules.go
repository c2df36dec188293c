package scripttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// host is a module whose functions do what functions of Go can do to a script.
func host() script.Module {
	return script.Module{
		Name: "host",
		Functions: map[string]script.Func{
			"wait": func(ctx context.Context, args []any) ([]any, error) {
				select {
				case <-time.After(time.Duration(args[0].(float64)) * time.Millisecond):
					return args, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			"fail": func(_ context.Context, args []any) ([]any, error) { return nil, errors.New(args[0].(string)) },
		},
		Pure: map[string]script.Func{
			"add": func(_ context.Context, args []any) ([]any, error) {
				return []any{args[0].(float64) + args[1].(float64)}, nil
			},
			"echo": func(_ context.Context, args []any) ([]any, error) { return args, nil },
			"kinds": func(_ context.Context, args []any) ([]any, error) {
				return []any{strings.Join(kinds(args), " ")}, nil
			},
			"numbers": func(context.Context, []any) ([]any, error) {
				return []any{5, int64(math.MaxInt64), uint64(math.MaxUint64), float32(1.5)}, nil
			},
			"panic": func(context.Context, []any) ([]any, error) { panic("dropped the ball") },
			"spin": func(_ context.Context, args []any) ([]any, error) {
				for until := time.Now().Add(time.Duration(args[0].(float64)) * time.Millisecond); time.Now().Before(until); {
				}
				return nil, nil
			},
			"unfit": func(context.Context, []any) ([]any, error) { return []any{make(chan int)}, nil },
		},
	}
}

func kinds(args []any) []string {
	var names []string
	for _, arg := range args {
		switch arg.(type) {
		case nil:
			names = append(names, "nil")
		case json.Number:
			names = append(names, "number")
		case []any:
			names = append(names, "list")
		case map[string]any:
			names = append(names, "map")
		default:
			names = append(names, fmt.Sprintf("%T", arg))
		}
	}
	return names
}

// files are what scripts can require.
var files = map[string]string{
	"lib/helpers.lua": `
local n = 0
local M = {}
function M.domain(email) return email:match("@(.+)$") end
function M.loaded() return n end
n = n + 1
return M`,
	"nothing.lua":    `local x = 1`,
	"number.lua":     `return 42`,
	"name.lua":       `return ...`,
	"chain.lua":      `return {inner = require "number"}`,
	"globals.lua":    `function shared(x) return x + 1 end`,
	"loop.lua":       `return require "loop"`,
	"compiled.lua":   "\x1bLJ\x02",
	"sandboxed.lua":  `assert(io == nil and os.execute == nil and getfenv == nil and load == nil and debug == nil) return true`,
	"lib/faulty.lua": "return {\n  call = function()\n    local x = nil + 1\n  end,\n}",
	"lib/syntax.lua": "local x =\nreturn",
	"lib/raises.lua": "\nerror('on purpose')",
}

func readFile(path string) ([]byte, error) {
	if text, found := files[path]; found {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// withModules is how scripts that use modules are loaded.
func withModules(limits script.Limits) script.Options {
	return script.Options{Limits: limits, Modules: []script.Module{host()}, Stats: &script.Stats{}}
}

func testModules(t *testing.T, lang script.Language) {
	t.Run("waiting is not running", func(t *testing.T) { testWaiting(t, lang) })
	t.Run("computing is running", func(t *testing.T) { testComputing(t, lang) })
	t.Run("running between calls", func(t *testing.T) { testBetweenCalls(t, lang) })
	t.Run("waiting is bounded", func(t *testing.T) { testWaitingBounded(t, lang) })
	t.Run("cancelled while waiting", func(t *testing.T) { testCancelledCall(t, lang) })
	t.Run("waiting together", func(t *testing.T) { testWaitingTogether(t, lang) })
	t.Run("log", func(t *testing.T) { testLog(t, lang) })
	t.Run("stats", func(t *testing.T) { testStats(t, lang) })
	t.Run("a file at load", func(t *testing.T) { testFaultyFile(t, lang) })
	t.Run("versions", func(t *testing.T) { testVersions(t, lang) })
	t.Run("names of events", func(t *testing.T) { testRequiredNames(t, lang) })
	t.Run("a name that is taken", func(t *testing.T) { testTakenName(t, lang) })
}

// testWaiting: an event may wait for longer than it may run, and so may a batch.
func testWaiting(t *testing.T, lang script.Language) {
	limits := script.Limits{EventTime: 2 * eventTime, BatchTime: 3 * eventTime}
	s := load(t, lang, `local host = require "host"
function main(event) event.waited = host.wait(130) return event end`, withModules(limits))
	res := run(t, s, `{"a":1}`, `{"a":2}`)
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"a":1,"waited":130} 1 {"a":2,"waited":130}`; got != want {
		t.Errorf("output is %s, want %s; dead %v", got, want, res.Dead)
	}
}

// testComputing: the time of a pure function is that of the script.
func testComputing(t *testing.T, lang script.Language) {
	testStopped(t, lang, `while true do require("host").spin(20) end`, script.Limits{EventTime: eventTime, BatchTime: 20 * time.Second}, "time limit")
}

// testBetweenCalls: the pieces between calls that wait add up.
func testBetweenCalls(t *testing.T, lang script.Language) {
	testStopped(t, lang, `while true do require("host").wait(1) for i = 1, 100000 do local s = tostring(i) end end`,
		script.Limits{EventTime: eventTime, BatchTime: 20 * time.Second}, "time limit")
}

// testWaitingBounded: an event may not wait without end, in one call or in many.
func testWaitingBounded(t *testing.T, lang script.Language) {
	for _, text := range []string{
		`require("host").wait(60000)`,
		`while true do require("host").wait(20) end`,
		`while true do pcall(require("host").wait, 60000) end`,
		`while true do pcall(require("net").addr, "localhost") end`,
	} {
		for _, limits := range []script.Limits{
			{EventTime: eventTime, BatchTime: time.Second},
			{EventTime: time.Second, BatchTime: time.Minute, WallTime: 3 * eventTime},
		} {
			began := time.Now()
			testStopped(t, lang, text, limits, "time limit")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: stopped after %v, want less than 10 s", text, took)
			}
		}
	}
}

func testCancelledCall(t *testing.T, lang script.Language) {
	s := load(t, lang, `local host = require "host"
function main(event) pcall(host.wait, event.ms) return event end`, withModules(script.Limits{}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := s.Run(ctx, batch(`{"ms":60000}`), result()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want that of the context", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if res := run(t, s, `{"ms":1}`); res.Outputs[0].Len() != 1 {
		t.Errorf("the next batch gave %v", res.Dead)
	}
}

// testWaitingTogether: more runs than there are cores can wait at the same time.
func testWaitingTogether(t *testing.T, lang script.Language) {
	runs := runtime.GOMAXPROCS(0) + 2
	var arrived sync.WaitGroup
	arrived.Add(runs)
	meet := func(ctx context.Context, _ []any) ([]any, error) {
		arrived.Done()
		all := make(chan struct{})
		go func() {
			arrived.Wait()
			close(all)
		}()
		select {
		case <-all:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	opts := withModules(script.Limits{})
	opts.Modules = append(opts.Modules, script.Module{Name: "meeting", Functions: map[string]script.Func{"meet": meet}})
	s := load(t, lang, `local meeting = require "meeting" function main(event) meeting.meet() return event end`, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for range runs {
		group.Go(func() {
			if err := s.Run(ctx, batch(`{}`), result()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func testFaultyFile(t *testing.T, lang script.Language) {
	code := script.Code{Name: scriptName, Text: []byte("local x = require 'lib.raises'"), Files: readFile}
	_, err := lang.Load(t.Context(), code, withModules(script.Limits{}))
	var fault *script.Error
	if !errors.As(err, &fault) || fault.Script != "lib/raises.lua" || fault.Line != 2 {
		t.Errorf("error is %v, want one in line 2 of lib/raises.lua", err)
	}
}

// testVersions: a script with other files is another version.
func testVersions(t *testing.T, lang script.Language) {
	version := func(text string) string {
		read := func(string) ([]byte, error) { return []byte(text), nil }
		code := script.Code{Name: scriptName, Text: []byte("require 'x' function main(e) return e end"), Files: read}
		s, err := lang.Load(t.Context(), code, withModules(script.Limits{}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		return s.String()
	}
	if one, two := version("return 1"), version("return 2"); one == two || one != version("return 1") {
		t.Errorf("versions are %s and %s", one, two)
	}
}

// testRequiredNames: events whose names a script requires cannot make it read for longer than their
// time, nor look for names that no file has, and their errors stay short.
func testRequiredNames(t *testing.T, lang script.Language) {
	const names = 1000
	var mu sync.Mutex
	reads, longest := 0, 0
	slow := func(path string) ([]byte, error) {
		time.Sleep(2 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		reads++
		longest = max(longest, len(path))
		return nil, fs.ErrNotExist
	}
	code := script.Code{Name: scriptName, Files: slow, Text: fmt.Appendf(nil, `
for _, name in ipairs {("x"):rep(3e6), ("x."):rep(1e6) .. "x", ("/"):rep(3e6), "a\0" .. ("b"):rep(1e6)} do
  local ok, why = pcall(require, name)
  assert(not ok and #tostring(why) < 1000 and tostring(why):find("invalid module name", 1, true), #tostring(why))
end
function main(event)
  for i = 1, event.names or 0 do pcall(require, "handlers.kind" .. i) end
  return event
end`)}
	limits := script.Limits{EventTime: eventTime, BatchTime: 20 * time.Second}
	opts := withModules(limits)
	opts.Sinks = []script.Sink{{}}
	s, err := lang.Load(t.Context(), code, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	res := run(t, s, `{"a":1}`, fmt.Sprintf(`{"names":%d}`, names), `{"a":2}`)
	if got := strings.Join(outLines(&res.Outputs[0]), " "); !strings.Contains(got, `0 {"a":1}`) || !strings.Contains(got, `2 {"a":2}`) {
		t.Errorf("output is %s, want events 0 and 2; dead %v", got, res.Dead)
	}
	if maxReads := int(eventTime/time.Millisecond) + 10; reads > maxReads {
		t.Errorf("an event with a time of %v read %d times for 2 ms, want at most %d times", eventTime, reads, maxReads)
	}
	if longest > 300 {
		t.Errorf("a name of %d bytes was looked for", longest)
	}
}

func testTakenName(t *testing.T, lang script.Language) {
	opts := withModules(script.Limits{})
	opts.Modules = []script.Module{{Name: "json"}}
	if _, err := lang.Load(t.Context(), script.Code{Name: scriptName, Text: []byte(passThrough)}, opts); err == nil || !strings.Contains(err.Error(), "json") {
		t.Errorf("error is %v, want that the name json is taken", err)
	}
}
