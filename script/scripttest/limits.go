package scripttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/script"
)

// endlessScripts never end if the event asks for it.
var endlessScripts = []struct{ name, text string }{
	{"while", `while true do end`},
	{"repeat", `repeat local x = 1 until false`},
	{"for", `for i = 1, math.huge do end`},
	{"goto-less tail call", `local function f() return f() end f()`},
	{"pcall", `while true do pcall(function() while true do end end) end`},
	{"pcall deep", `local function f() pcall(f) pcall(f) end f()`},
	{"xpcall", `while true do xpcall(function() while true do end end, function() while true do end end) end`},
	{"coroutine", `while true do coroutine.wrap(function() while true do end end)() end`},
	{"coroutine resumed", `while true do coroutine.resume(coroutine.create(function() while true do end end)) end`},
	{"metamethod", `local t = setmetatable({}, {__index = function() while true do end end}) local x = t.x`},
	{"sort", `table.sort({3, 2, 1, 5, 4}, function() while true do end end)`},
	{"gsub", `("aaa"):gsub("a", function() while true do end end)`},
	{"reading", `while true do local x = event.a end`},
	{"writing", `while true do event.a = 1 end`},
	{"pairs", `while true do for k, v in pairs(event) do end end`},
	{"pattern", `local s = ("ab"):rep(30000) s:find("(.-)(.-)%1%2%1c")`},
	{"pattern in pcall", `local s = ("a"):rep(30000) while true do pcall(string.match, s, "(.-)(.-)(.-)(.-)b$") end`},
	{"gmatch", `local s = ("ab"):rep(30000) for x in s:gmatch("(.-)(.-)%1%2%1c") do end`},
	{"re.match", `local re = require "re" re.match(("x"):rep(1e6), ("x?"):rep(800) .. ("x"):rep(400) .. "y")`},
	{"re.match in pcall", `local re = require "re" while true do pcall(re.match, ("x"):rep(1e6), ("x?"):rep(800) .. ("x"):rep(400) .. "y") end`},
	{"re.all in quadratic time", `local re = require "re" re.all(("a"):rep(90000), "a*b|a")`},
	{"re.gmatch", `local re = require "re" for _ in re.gmatch(("a"):rep(90000), "a*b|a") do end`},
	{"re.replace by many groups", `local re = require "re" while true do re.replace(("a"):rep(90000), "a()", ("$1"):rep(300000)) end`},
	{"re with ever new patterns", `local re, i = require "re", 0 while true do i = i + 1 re.test("a", "(?i)" .. ("[A-\\x{FFFF}]"):rep(30) .. i) end`},
	{"hash", `local hash, s = require "hash", ("x"):rep(4e6) while true do hash.sha512(s) end`},
	{"hmac", `local hash, s = require "hash", ("x"):rep(4e6) while true do pcall(hash.hmac, "md5", s, s) end`},
	{"time.format", `local time, s = require "time", ("%c"):rep(2000) while true do time.format(0, s) end`},
	{"gsub pattern", `local s = ("ab"):rep(30000) s:gsub("(.-)(.-)%1%2%1c", "")`},
}

// hoardingScripts allocate without end.
var hoardingScripts = []struct{ name, text string }{
	{"table", `local t = {} for i = 1, math.huge do t[i] = {i} end`},
	{"string", `local s = "x" while true do s = s .. s end`},
	{"rep", `local s = ("x"):rep(1e9)`},
	{"rep in pcall", `local t = {} while true do pcall(function() t[#t + 1] = ("x"):rep(1e6) .. #t end) end`},
	{"concat", `local t = {} for i = 1, 1000 do t[i] = ("x"):rep(1e6) end local s = table.concat(t)`},
	{"gsub", `local s = ("x"):rep(1e5):gsub("x", ("y"):rep(1e5))`},
	{"format", `local s = ("x"):rep(2^20) while true do s = string.format("%s%s", s, s) end`},
	{"re.all of many groups", `local re = require "re" re.all(("a"):rep(90000), "a" .. ("()"):rep(90))`},
	{"re.match of long groups", `local re = require "re" re.match(("a"):rep(1e6), ("("):rep(30) .. "a*" .. (")"):rep(30))`},
	{"a document for Go", `require "re".test("a", json.decode("[" .. ("0,"):rep(5e5) .. "0]"))`},
	{"a document that is larger in Go", `require "re".test("a", json.decode("[" .. ("0,"):rep(5e4) .. "0]"))`},
	{"document", `for i = 1, math.huge do event["k" .. i] = i end`},
	{"array", `event.a = json.array() for i = 1, math.huge do event.a[i] = i end`},
	{"coroutines", `local t = {} for i = 1, math.huge do t[i] = coroutine.create(function() end) coroutine.resume(t[i]) end`},
}

const eventTime = 50 * time.Millisecond

func testLimits(t *testing.T, lang script.Language, has Features) {
	limits := script.Limits{EventTime: eventTime, BatchTime: 20 * time.Second}
	for _, c := range endlessScripts {
		t.Run("endless "+c.name, func(t *testing.T) { testStopped(t, lang, c.text, limits, "time limit") })
	}
	limits = script.Limits{EventTime: time.Minute, BatchTime: 2 * time.Minute, Memory: 8 << 20} // the race detector makes re ten times slower
	for _, c := range hoardingScripts {
		if has.Memory || c.name == "rep" { // which every engine refuses
			t.Run("hoarding "+c.name, func(t *testing.T) { testStopped(t, lang, c.text, limits, "memory") })
		}
	}
	t.Run("limit caught", func(t *testing.T) { testCaught(t, lang) })
	t.Run("batch time", func(t *testing.T) { testBatchTime(t, lang) })
	t.Run("batch time of one event", func(t *testing.T) { testBatchTimeOfOne(t, lang) })
	t.Run("output", func(t *testing.T) { testOutput(t, lang) })
	t.Run("max_event", func(t *testing.T) { testMaxEvent(t, lang) })
	t.Run("output of one event", func(t *testing.T) { testOutputOfOne(t, lang) })
}

// testMaxEvent leaves large events out, in whole batches and in what a limit left of one.
func testMaxEvent(t *testing.T, lang script.Language) {
	s := load(t, lang, "function main(event)\n  return event\nend", script.Options{})
	large := `{"a":"` + strings.Repeat("x", 100) + `"}`
	max := script.MaxEvent{Bytes: 100}
	for range 2 {
		in, res := batch(`{"a":1}`, large, `no`, `{"a":2}`, large), result()
		if err := max.Run(t.Context(), s, in, res); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"a":1} 3 {"a":2}`; got != want {
			t.Errorf("output is %s, want %s", got, want)
		}
		if res.Ran != 5 || len(res.Dead) != 3 {
			t.Fatalf("%d events ran, dead letters are %v", res.Ran, res.Dead)
		}
		for i, number := range []int{1, 2, 4} {
			dead := &res.Dead[i]
			if dead.Position != firstPosition+uint64(number) || dead.Stage != "parse" || string(dead.Original) != string(in.Doc(number)) ||
				strings.Contains(dead.Error, "max_event") != (number != 2) {
				t.Errorf("dead letter %d is %q with %q", i, dead, dead.Original)
			}
		}
	}
}

// testStopped runs an event that misbehaves between two that do not.
func testStopped(t *testing.T, lang script.Language, text string, limits script.Limits, reason string) {
	s := load(t, lang, "function main(event)\n  if event.bad then\n"+text+"\n  end\n  return event\nend", withModules(limits))
	res := run(t, s, `{"a":1}`, `{"a":2,"bad":true}`, `{"a":3}`)
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"a":1} 2 {"a":3}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	if len(res.Dead) != 1 {
		t.Fatalf("%d dead letters, want 1: %v", len(res.Dead), res.Dead)
	}
	dead := res.Dead[0]
	if dead.Stage != "script" || !strings.Contains(dead.Error, reason) || !strings.Contains(dead.Error, "case.lua:3:") {
		t.Errorf("dead letter is %q, want stage script, line 3 and %q", &dead, reason)
	}
	if again := run(t, s, `{"a":4}`); again.Outputs[0].Len() != 1 {
		t.Errorf("the next batch gave %v", again)
	}
}

// testCaught: an event that catches its limit must not produce output.
func testCaught(t *testing.T, lang script.Language) {
	const text = `
function main(event)
  pcall(function() while event.bad do end end)
  return {caught = true}
end`
	s := load(t, lang, text, script.Options{Limits: script.Limits{EventTime: eventTime}})
	res := run(t, s, `{"bad":true}`, `{}`)
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `1 {"caught":true}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
}

// testBatchTime: the rest of the batch runs again, including the event that was
// running, which may not be at fault.
func testBatchTime(t *testing.T, lang script.Language) {
	limits := script.Limits{EventTime: eventTime, BatchTime: eventTime * 5 / 2}
	s := load(t, lang, "function main(event)\n  while true do end\nend", script.Options{Limits: limits})
	docs := strings.Fields(strings.Repeat("{} ", 20))
	in, res := batch(docs...), result()
	err := s.Run(t.Context(), in, res)
	var limit *script.LimitError
	if !errors.As(err, &limit) || limit.Limit != "batch time" {
		t.Fatalf("error is %v, want the batch time limit", err)
	}
	if res.Ran < 1 || res.Ran >= len(docs) || len(res.Dead) != res.Ran {
		t.Errorf("ran %d of %d events with %d dead letters, want some of them, all dead", res.Ran, len(docs), len(res.Dead))
	}
	checkResult(t, s, docs, in, res)
}

// testBatchTimeOfOne: each run makes progress, so an event that alone exceeds the
// batch's time is dead.
func testBatchTimeOfOne(t *testing.T, lang script.Language) {
	limits := script.Limits{EventTime: time.Minute, BatchTime: 100 * time.Millisecond}
	s := load(t, lang, "function main(event)\n  while event.bad do end\n  return event\nend", script.Options{Limits: limits})
	docs := []string{`{"bad":true}`, `{"n":2}`}
	in, res := batch(docs...), result()
	err := s.Run(t.Context(), in, res)
	var limit *script.LimitError
	if err != nil && !errors.As(err, &limit) {
		t.Fatalf("error is %v, want none or a limit", err)
	}
	if res.Ran < 1 || len(res.Dead) != 1 || res.Dead[0].Position != firstPosition || !strings.Contains(res.Dead[0].Error, "time limit") {
		t.Errorf("ran %d events, dead %v; want the first one dead at the time limit", res.Ran, res.Dead)
	}
	checkResult(t, s, docs, in, res)
}

func testOutput(t *testing.T, lang script.Language) {
	s := load(t, lang, `function main(event) return {text = ("x"):rep(390)} end`, script.Options{Limits: script.Limits{Output: 1000, EventTime: 20 * time.Second, BatchTime: time.Minute}})
	docs := strings.Fields(strings.Repeat("{} ", 5))
	in, res := batch(docs...), result()
	err := s.Run(t.Context(), in, res)
	var limit *script.LimitError
	if !errors.As(err, &limit) || limit.Limit != "output" {
		t.Fatalf("error is %v, want the output limit", err)
	}
	if res.Ran != 2 || res.Outputs[0].Len() != 2 {
		t.Errorf("ran %d events with %d outputs, want 2", res.Ran, res.Outputs[0].Len())
	}
	checkResult(t, s, docs, in, res)
}

func testOutputOfOne(t *testing.T, lang script.Language) {
	s := load(t, lang, `
function main(event)
  local n = event.n
  if n > 100 then
    local list = {}
    for i = 1, n do list[i] = {text = ("x"):rep(100)} end
    return list
  end
  return event
end`, script.Options{Limits: script.Limits{Output: 10_000, EventTime: 20 * time.Second, BatchTime: time.Minute}})
	res := run(t, s, `{"n":1}`, `{"n":1000}`, `{"n":2}`)
	if got, want := strings.Join(outLines(&res.Outputs[0]), " "), `0 {"n":1} 2 {"n":2}`; got != want {
		t.Errorf("output is %s, want %s", got, want)
	}
	if len(res.Dead) != 1 || !strings.Contains(res.Dead[0].Error, "output") {
		t.Errorf("dead letters are %v, want one about the output", res.Dead)
	}
}
