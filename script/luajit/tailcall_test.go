//go:build cgo && luajit

package luajit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/script/pool"
)

const endingsText = `
local host, file = require "host", require "other"
function drops(...) host.echo(...) end
function forgets(...) local kept = host.echo(...) end
function returns(...) return host.echo(...) end
function keeps(...) local kept = host.echo(...) return kept end
function waits(...) return host.wait(...) end
function goes() host.wait(1) end
function sleeps() host.sleep(20) end
function refuse()

  host.refuse()
end
function refused() return host.refuse() end
function pure() host.broken() end
function elsewhere() file.refuse() end
function inside(a) local function f() host.echo(a) end f() return a end
function loop(n) for i = 1, n do if i == n then return host.echo(i) end end end
function closes(a) do local function f() return a end host.echo(f) end end
function rescued() local ok = pcall(host.refuse) return ok end
function both(...) return host.echo(...), 1 end
function first(...) return (host.echo(...)) end
function after(a) host.echo(a) a = a + 1 return a end
function choice(a) if a then host.echo(a) else return "no" end end
function times(n) for i = 1, n do host.echo(i) end end
function joined(a) return "<" .. host.echo(a) end
function upvalue(a) local b local function f() return b end b = host.wait(a) return f() end
function nested(a) local function f(b) return host.wait(b) end local c = f(a) return c end
function tailed(a) local function f(b) return host.wait(b) end return f(a) end
function safe() return pcall(host.wait, 1) end
function safer() return xpcall(host.refuse, function(e) return host.wait(e) end) end
function routine(a) return coroutine.resume(coroutine.create(function() host.wait(a) end)) end
function wraps(a) return coroutine.wrap(function(b) return host.echo(b) end)(a) end
function sorts() local t = {3, 1, 2} table.sort(t, function(a, b) return host.less(a, b) end) return t end
function replaces() return string.gsub("ab", "%w", function(c) return host.echo(c) end) end
function replacesLast() return string.gsub("ab", ".$", host.echo) end
local index = setmetatable({}, {__index = function(_, k) return host.echo(k) end, __call = function(_, a) return host.echo(a) end,
  __newindex = function(_, _, v) host.echo(v) end, __tostring = function() return host.echo("text") end,
  __add = function(_, b) return host.echo(b) end, __eq = function() return host.echo(1) end,
  __pairs = function() return next, {host.echo(1), host.echo(2)} end,
  __concat = function() return host.wait("c") end})
function indexes() return index.key end
function assigns() index.key = 1 end
function calls(a) return index(a) end
function adds(a) return index + a end
function equals() return index == setmetatable({}, getmetatable(index)) end
function texts() return tostring(index) end
function walks() local n = 0 for _, v in pairs(index) do n = n + v end return n end
function concats() return index .. "x" end
function throws() return host.throw() end
function throwsIn() host.throw() return 1 end
direct, waiting = host.echo, host.wait
inFile = file.refuse
host.echo("the text ends with a call")
`

const otherText = `
local host = require "host"
return {refuse = function() host.refuse() end}
`

func endings(t *testing.T, load func(context.Context, script.Code, script.Options) (*luajit.CallableScript, error), settings pool.Settings) *luajit.CallableScript {
	t.Helper()
	host := hostModule(nil)
	host.Functions["wait"] = host.Pure["echo"]
	host.Pure["broken"] = host.Functions["refuse"]
	host.Pure["throw"] = func(context.Context, []any) ([]any, error) { panic("oh") }
	host.Pure["less"] = func(_ context.Context, args []any) ([]any, error) {
		return []any{args[0].(float64) < args[1].(float64)}, nil
	}
	f, err := load(t.Context(), script.Code{
		Name: "ends.lua", Text: []byte(endingsText), Files: func(string) ([]byte, error) { return []byte(otherText), nil },
	}, script.Options{Modules: []script.Module{host}, Pool: pool.New(settings)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestCallsThatEndInGo: it cannot be told from results and errors that the last
// function of Go is called when Lua is done, also when all is compiled.
func TestCallsThatEndInGo(t *testing.T) {
	holes := []any{1.0, nil, map[string]any{"a": nil, "b": []any{nil}}, nil}
	dense := []any{1.0, nil, map[string]any{"b": []any{}}}
	tests := []struct {
		function  string
		args      []any
		want      []any
		fails     string
		line      int
		traceback string
	}{
		{function: "drops", args: []any{1, "a"}},
		{function: "forgets", args: []any{1, "a"}},
		{function: "returns", args: []any{1, "a", nil}, want: []any{1.0, "a", nil}},
		{function: "returns", args: []any{holes}, want: []any{dense}},
		{function: "keeps", args: []any{holes}, want: []any{dense}},
		{function: "waits", args: []any{1, "a", nil}, want: []any{1.0, "a", nil}},
		{function: "waits", args: []any{holes}, want: []any{dense}},
		{function: "goes"},
		{function: "refuse", fails: "ends.lua:12: host.refuse: nope", line: 12, traceback: "  ends.lua:12: in function at line 10"},
		{function: "refused", fails: "ends.lua: host.refuse: nope"},
		{function: "pure", fails: "ends.lua:15: host.broken: nope", line: 15, traceback: "  ends.lua:15: in function at line 15"},
		{function: "inFile", fails: "other.lua:3: host.refuse: nope", line: 3, traceback: "  other.lua:3: in function at line 3"},
		{function: "elsewhere", fails: "other.lua:3: host.refuse: nope", line: 3, traceback: "  other.lua:3: in refuse\n  ends.lua:16: in function at line 16"},
		{function: "inside", args: []any{3}, want: []any{3.0}},
		{function: "loop", args: []any{300}, want: []any{300.0}},
		{function: "closes", args: []any{1}, fails: "ends.lua:19: a function cannot be passed to a Go function", line: 19, traceback: "  ends.lua:19: in function at line 19"},
		{function: "rescued", want: []any{false}},
		{function: "both", args: []any{3, 4}, want: []any{3.0, 1.0}},
		{function: "first", args: []any{3, 4}, want: []any{3.0}},
		{function: "after", args: []any{3}, want: []any{4.0}},
		{function: "choice", args: []any{3}},
		{function: "choice", want: []any{"no"}},
		{function: "times", args: []any{3}},
		{function: "joined", args: []any{3}, want: []any{"<3"}},
		{function: "upvalue", args: []any{3}, want: []any{3.0}},
		{function: "nested", args: []any{3}, want: []any{3.0}},
		{function: "tailed", args: []any{3}, want: []any{3.0}},
		{function: "safe", want: []any{true, 1.0}},
		{function: "safer", want: []any{false, "host.refuse: nope"}},
		{function: "routine", args: []any{3}, want: []any{true}},
		{function: "wraps", args: []any{3}, want: []any{3.0}},
		{function: "sorts", want: []any{[]any{1.0, 2.0, 3.0}}},
		{function: "replaces", want: []any{"ab", 2.0}},
		{function: "replacesLast", want: []any{"ab", 1.0}},
		{function: "indexes", want: []any{"key"}},
		{function: "assigns"},
		{function: "calls", args: []any{3}, want: []any{3.0}},
		{function: "adds", args: []any{3}, want: []any{3.0}},
		{function: "equals", want: []any{true}},
		{function: "texts", want: []any{"text"}},
		{function: "walks", want: []any{3.0}},
		{function: "concats", want: []any{"c"}},
		{function: "throws", fails: "ends.lua: host.throw: panic: oh"},
		{function: "throwsIn", fails: "ends.lua:51: host.throw: panic: oh", line: 51, traceback: "  ends.lua:51: in function at line 51"},
		{function: "direct", args: []any{3, nil}, want: []any{3.0, nil}},
		{function: "waiting", args: []any{3, nil}, want: []any{3.0, nil}},
	}
	for name, load := range map[string]func(context.Context, script.Code, script.Options) (*luajit.CallableScript, error){
		"compiled": luajit.LoadCallable, "interpreted": luajit.LoadCallableInterpreted,
	} {
		f := endings(t, load, pool.Settings{Core: 1, Max: 1})
		for _, test := range tests {
			t.Run(name+"/"+test.function, func(t *testing.T) {
				for range 300 {
					got, err := f.Invoke(t.Context(), test.function, test.args...)
					if test.fails == "" {
						if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
							t.Fatalf("error %v (-want +got):\n%s", err, diff)
						}
						continue
					}
					var fault *script.Error
					if !errors.As(err, &fault) || err.Error() != test.fails || fault.Line != test.line || fault.Traceback != test.traceback {
						t.Fatalf("error is %v: %+v", err, fault)
					}
					if errors.Is(err, errNope) != strings.HasSuffix(test.fails, ": nope") {
						t.Fatalf("%v is or is not the error of the function of Go", err)
					}
				}
			})
		}
	}
}

// TestTextEndsInGo: a script's text that ends with a call of Go is no call, so Lua waits for the
// function before the script is loaded.
func TestTextEndsInGo(t *testing.T) {
	calls := 0
	count := func(context.Context, []any) ([]any, error) { calls++; return nil, nil }
	host := script.Module{Name: "host", Functions: map[string]script.Func{"wait": count}, Pure: map[string]script.Func{"count": count}}
	for _, end := range []string{"host.count()", "return host.count()", "host.wait()", "return host.wait()"} {
		calls = 0
		f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "end.lua", Text: []byte("local host = require 'host'\n" + end)},
			script.Options{Modules: []script.Module{host}, Pool: pool.New(pool.Settings{Core: 1, Max: 1})})
		if err != nil {
			t.Fatal(end, err)
		}
		_ = f.Close()
		if calls != 1 {
			t.Errorf("%s: Go was called %d times, want 1", end, calls)
		}
	}
}

// TestEndsWithoutVM: a call that ends in a function of Go that waits holds no VM,
// and nothing in one.
func TestEndsWithoutVM(t *testing.T) {
	f := endings(t, luajit.LoadCallable, pool.Settings{Core: 1, Max: 1})
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 50 {
		group.Go(func() {
			if _, err := f.Invoke(t.Context(), "sleeps"); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if _, err := f.Invoke(ctx, "sleeps"); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if s := f.Stats(); s.Suspended != 0 {
			t.Fatalf("stats are %+v", s)
		}
	}
	cancel()
	group.Wait()
	if _, err := f.Invoke(ctx, "sleeps"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if s := f.Stats(); s.Made != 1 || s.Idle != 1 {
		t.Errorf("stats are %+v", s)
	}
}

// TestCloseWaits for calls that have nothing left to do but a function of Go.
func TestCloseWaits(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	host := script.Module{Name: "host", Functions: map[string]script.Func{
		"store": func(context.Context, []any) ([]any, error) {
			close(begun)
			<-goOn
			ended.Store(true)
			return []any{"stored"}, nil
		},
	}}
	f, err := luajit.LoadCallable(t.Context(), script.Code{
		Name: "close.lua", Text: []byte(`local host = require "host" function store() return host.store() end`),
	}, script.Options{Modules: []script.Module{host}})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if got, err := f.Invoke(context.Background(), "store"); err != nil || len(got) != 1 || got[0] != "stored" {
			t.Errorf("%v, %v", got, err)
		}
	})
	<-begun
	if s := f.Stats(); s.InUse+s.Suspended > 0 {
		t.Errorf("stats are %+v", s)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	_ = f.Close()
	if !ended.Load() {
		t.Error("a call was under way when Close returned")
	}
	group.Wait()
}

// TestLastIsNotLimited: what a call ends with is not held against its time limit, as
// the same function is where Lua goes on.
func TestLastIsNotLimited(t *testing.T) {
	host := script.Module{Name: "host", Pure: map[string]script.Func{
		"spin": func(context.Context, []any) ([]any, error) {
			for until := time.Now().Add(40 * time.Millisecond); time.Now().Before(until); {
			}
			return nil, nil
		},
	}}
	f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "spin.lua", Text: []byte(`
local host = require "host"
function last() host.spin() end
function inside() while true do host.spin() end end
`)}, script.Options{Modules: []script.Module{host}, Limits: script.Limits{EventTime: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Invoke(t.Context(), "last"); err != nil {
		t.Error(err)
	}
	if _, err := f.Invoke(t.Context(), "inside"); err == nil || !strings.Contains(err.Error(), "time limit") {
		t.Errorf("error is %v", err)
	}
	if s := f.Stats(); s.Discarded != 1 {
		t.Errorf("stats are %+v", s)
	}
}
