//go:build cgo && luajit

package luajit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
)

func TestValuesCross(t *testing.T) {
	values := []any{
		nil, true, false, 1.5, "", "a\x00\xff", json.Number("9007199254740993"),
		[]any{}, []any{nil, []any{1.0}}, map[string]any{}, map[string]any{"a": map[string]any{"": nil}, "b": []any{"x"}},
	}
	data := encodeValues(nil, values)
	got, err := decodeValues(data)
	if diff := cmp.Diff(values, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	whole := map[int]int{} // number of values by size in bytes
	for i := range values {
		whole[len(encodeValues(nil, values[:i]))] = i
	}
	for n := range data {
		got, err := decodeValues(data[:n])
		if count, ok := whole[n]; (err == nil) != ok || ok && len(got) != count {
			t.Errorf("%d of %d bytes gave %v, error %v", n, len(data), got, err)
		}
	}
	key := string(encodeValue(nil, "a"))
	for _, unknown := range []string{"?", "L" + string(binary.NativeEndian.AppendUint32(nil, 1)) + "?", "M" + key + "?E"} {
		if got, err := decodeValues([]byte(unknown)); err == nil || !strings.Contains(err.Error(), `unknown kind "?"`) {
			t.Errorf("%q gave %v, error %v", unknown, got, err)
		}
	}
}

// callers are scripts that call Go in ways that must not evade a limit.
var callers = []struct {
	name, code string
	want       []Kind
}{
	{"calls without end", `while true do host.pure() end`, []Kind{EventTime}},
	{"calls that wait without end", `while true do host.wait() end`, []Kind{EventTime}},
	{"caught", `while true do pcall(host.wait) end`, []Kind{EventTime}},
	{"failing without end", `while true do pcall(host.fail) end`, []Kind{EventTime}},
	{"in coroutines", `while true do coroutine.wrap(function() host.wait() end)() end`, []Kind{EventTime}},
	{"deep", `local function f() pcall(f) host.wait() end f()`, []Kind{EventTime, Stack, Memory, OK}},
	{"in a callback", `while true do ("a"):rep(1e4):gsub(".", function() host.pure() end) end`, []Kind{EventTime}},
	{"in sort", `local t = {} for i = 1, 1e5 do t[i] = -i end table.sort(t, function(a, b) host.pure() return a < b end)`, []Kind{EventTime}},
	{"in metamethods", `local t = setmetatable({}, {__index = function(t, k) host.wait() return t[k] end}) local x = t.x`, []Kind{EventTime, Stack, Memory}},
	{"one so long that the watchdog sleeps", `host.nap() while true do end`, []Kind{EventTime}},
	{"a long one", `while true do host.spin() end`, []Kind{EventTime}},
	{"a large answer", `local t = {} while true do t[#t + 1] = host.large() end`, []Kind{Memory, EventTime}},
	{"a large request", `local s = ("x"):rep(1e5) local t = {} for i = 1, 1e4 do t[i] = s end host.pure(t)`, []Kind{Memory}},
	{"a file that runs on", `require "endless"`, []Kind{EventTime}},
	{"files without end", `while true do pcall(require, "broken") end`, []Kind{EventTime}},
}

func TestCallsUnderLimits(t *testing.T) {
	for _, interpreted := range []bool{false, true} {
		for _, test := range callers {
			name := "compiled "
			if interpreted {
				name = "interpreted "
			}
			t.Run(name+test.name, func(t *testing.T) {
				opts := defaults()
				opts.NoJIT, opts.Memory = interpreted, 8<<20
				runCaller(t, opts, test.code, test.want)
			})
		}
	}
}

func runCaller(t *testing.T, opts Options, code string, want []Kind) {
	w := NewWatchdog()
	defer w.Close()
	e, err := NewEngine(w, opts, Setup{Output: 1 << 20, Sinks: []Sink{{}}, Host: testHost()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	script := "local host = require 'host'\nfunction main(event)\nif event.bad then " + code + " end\nreturn event\nend"
	if err := e.Load(t.Context(), "caller.lua", []byte(script)); err != nil {
		t.Fatal(err)
	}
	in := new(event.Batch)
	for _, doc := range []string{`{"n":1}`, `{"bad":true}`, `{"n":2}`} {
		in.Append([]byte(doc))
	}
	start := time.Now()
	out := e.Run(t.Context(), in, 0)
	kind := OK
	if dead := out.DeadEvents(); len(dead) > 0 {
		kind = dead[0].ScriptError.Kind
	}
	for _, one := range want {
		if kind == one {
			return
		}
	}
	t.Errorf("ended with %v after %v, want one of %v", kind, time.Since(start), want)
}

func testHost() *Host {
	long := make([]any, 10_000)
	for i := range long {
		long[i] = "element"
	}
	nothing := func(context.Context, []any) ([]any, error) { return nil, nil }
	return &Host{
		Functions: []Function{
			{Name: "host.pure", Call: nothing},
			{Name: "host.wait", Call: nothing, Waits: true},
			{Name: "host.fail", Call: func(context.Context, []any) ([]any, error) { return nil, errors.New("no") }},
			{Name: "host.large", Call: func(context.Context, []any) ([]any, error) { return []any{long}, nil }},
			{Name: "host.nap", Waits: true, Call: func(context.Context, []any) ([]any, error) {
				time.Sleep((idleTicks + 20) * watchInterval)
				return nil, nil
			}},
			{Name: "host.spin", Call: func(context.Context, []any) ([]any, error) {
				for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); {
				}
				return nil, nil
			}},
		},
		File: func(name string) ([]byte, string, error) {
			text := map[string]string{"endless": "while true do end", "broken": "return ("}[name]
			if text == "" {
				return nil, "", errors.New("there is no " + name)
			}
			return []byte(text), name + ".lua", nil
		},
	}
}

// TestAccountOfPieces checks that time used before a call of Go counts towards the limit of its
// event, and of no other. Time passes in the bubble only while the function sleeps.
func TestAccountOfPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := defaults()
		opts.EventTime, opts.BatchTime = 250*time.Millisecond, 10*time.Second
		w := NewWatchdog()
		defer w.Close()
		host := &Host{Functions: []Function{{Name: "host.spin", Call: func(context.Context, []any) ([]any, error) {
			time.Sleep(10 * time.Millisecond)
			return nil, nil
		}}}}
		e, err := NewEngine(w, opts, Setup{Output: 1 << 20, Sinks: []Sink{{}}, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		const code = `local host = require "host"
function main(event)
  for i = 1, event.spins do host.spin() end
  return event
end`
		if err := e.Load(t.Context(), "spin.lua", []byte(code)); err != nil {
			t.Fatal(err)
		}
		in := new(event.Batch)
		for range 10 {
			in.Append([]byte(`{"spins":3}`)) // 30 ms each: together more than an event may take
		}
		if out := e.Run(t.Context(), in, 0); len(out.DeadEvents()) != 0 || len(out.Ends) != 10 {
			t.Fatalf("%d came out, dead %v", len(out.Ends), out.DeadEvents())
		}
		in.Reset()
		in.Append([]byte(`{"spins":24}`)) // 10 ms less than an event may take
		in.Append([]byte(`{"spins":1000}`))
		dead := e.Run(t.Context(), in, 0).DeadEvents()
		if len(dead) != 1 || dead[0].Event != 1 || dead[0].ScriptError.Kind != EventTime || !strings.Contains(dead[0].ScriptError.Traceback, "spin.lua:3") {
			t.Errorf("dead %v, want the second event's time limit in line 3", dead)
		}
	})
}

// TestFailingFileAgain requires a file that fails again and again: no memory may leak.
func TestFailingFileAgain(t *testing.T) {
	const times, maxBytes = 10_000, 100_000 // failing files of a round, and the bytes that it may take
	rounds := 11
	if testing.Short() {
		rounds = 5
	}
	w := NewWatchdog()
	defer w.Close()
	opts := defaults()
	opts.EventTime, opts.BatchTime = time.Minute, time.Minute
	e, err := NewEngine(w, opts, Setup{Output: 1 << 20, Sinks: []Sink{{}}, Host: testHost()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Load(t.Context(), "again.lua", []byte("function main(event) for i = 1, event.times do pcall(require, 'broken') end return event end")); err != nil {
		t.Fatal(err)
	}
	run := func(times int) {
		in := new(event.Batch)
		in.Append(fmt.Appendf(nil, `{"times":%d}`, times))
		if out := e.Run(t.Context(), in, 0); out.Limit != OK || len(out.DeadEvents()) > 0 {
			t.Fatalf("limit %v, dead %v", out.Limit, out.DeadEvents())
		}
	}
	run(1000)
	before, _, counted := document.AllocatorBytes()
	if !counted {
		t.Skip("this allocator does not tell what it has")
	}
	grown := make([]int64, rounds)
	for i := range grown {
		run(times)
		after, _, _ := document.AllocatorBytes()
		grown[i] = int64(after) - int64(before)
		before = after
	}
	// The allocator is the whole process's: another thread grows one round or shrinks it, a leak
	// grows every round.
	slices.Sort(grown)
	if median := grown[rounds/2]; median > maxBytes {
		t.Errorf("%d failing files took %d bytes in the median of %d rounds, want at most %d: %v", times, median, rounds, maxBytes, grown)
	}
}
