package gopherlua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
)

// traps are what gopher-lua itself gets wrong, each with a part of the error
// that a script sees instead.
var traps = []struct{ name, text, reason string }{
	{"yield across pcall", `
local co = coroutine.wrap(function() pcall(function() coroutine.yield(1) end) error("went on") end)
co()`, "went on"},
	{"yield across pcall says so", `
local ok, err
coroutine.wrap(function() ok, err = pcall(function() coroutine.yield(1) end) end)()
error(err)`, "across pcall"},
	{"yield in a comparison of sort", `
coroutine.wrap(function() table.sort({2, 1, 3}, function() coroutine.yield(1) end) end)()
error("went on")`, ""},
	{"pcall in pcall in pcall", `
local function f() return pcall(f) end
local function deepest(ok, ...) if ok then return deepest(...) end return ... end
error(deepest(f()))`, "stack overflow"},
	{"huge unpack", `unpack({}, 1, 1e8)`, "too many"},
	{"pattern too complex", `("x"):find(("x?"):rep(300))`, "too complex"},
}

func TestTraps(t *testing.T) {
	for _, c := range traps {
		t.Run(c.name, func(t *testing.T) {
			text := "function main(event)\n  if event.bad then\n" + c.text + "\n  end\n  return event\nend"
			s, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "trap.lua", Text: []byte(text)},
				script.Options{Sinks: []script.Sink{{}}, Limits: script.Limits{EventTime: 20 * time.Second, BatchTime: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var in event.Batch
			in.Append([]byte(`{"bad":true}`))
			in.Append([]byte(`{"a":1}`))
			in.Range.Count = 2
			res := event.Result{Outputs: make([]event.Output, 1)}
			if err := s.Run(t.Context(), &in, &res); err != nil {
				t.Fatal(err)
			}
			if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, c.reason) {
				t.Errorf("dead letters are %v, want one with %q", res.Dead, c.reason)
			}
			if res.Outputs[0].Len() != 1 || string(res.Outputs[0].Doc(0)) != `{"a":1}` {
				t.Errorf("the event after it came out as %q", res.Outputs[0].Data)
			}
		})
	}
}

// TestFailureInPcall catches what Go says when gopher-lua itself fails: the next event runs in
// another machine.
func TestFailureInPcall(t *testing.T) {
	for message, want := range map[string]string{
		"runtime error: index out of range": `{"n":1}{"n":1}`,
		"index out of range":                `{"n":1}{"n":2}`,
	} {
		text := `local n = 0
function main(event)
  n = n + 1
  assert(not pcall(error, "` + message + `", 0))
  return {n = n}
end`
		s, err := gopherlua.Language().Load(t.Context(), script.Code{Name: "trap.lua", Text: []byte(text)}, script.Options{Sinks: []script.Sink{{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var in event.Batch
		in.Append([]byte(`{}`))
		in.Append([]byte(`{}`))
		in.Range.Count = 2
		res := event.Result{Outputs: make([]event.Output, 1)}
		if err := s.Run(t.Context(), &in, &res); err != nil {
			t.Fatal(err)
		}
		if got := string(res.Outputs[0].Data); got != want {
			t.Errorf("after %q came out %s, want %s", message, got, want)
		}
	}
}
