//go:build cgo && luajit

package luajit

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Probe tests whether scripts can run compiled on this machine: whether LuaJIT can allocate
// executable memory, and whether a compiled loop can be stopped. If it returns an error, open VMs
// with NoJIT: they are slower, but enforce the same limits.
func Probe() error {
	w := newWatchdog(probeInterval)
	defer w.Close()
	if err := probeCompiler(w); err != nil {
		return err
	}
	return probeHook(w)
}

// probeLimits are for code that ends by itself, in less than a millisecond: on a busy machine it may
// have to wait.
var probeLimits = Options{EventTime: 10 * time.Second, BatchTime: 10 * time.Second, Memory: 8 << 20}

// hookTime and probeInterval are short, because a probe delays the start of every command
// that runs a script. A loop is compiled long before it reaches the limit.
const hookTime = time.Millisecond

const probeInterval = 200 * time.Microsecond

func probeCompiler(w *Watchdog) error {
	vm, err := Open(w, probeLimits)
	if err != nil {
		return err
	}
	defer vm.Close()
	err = vm.runTrusted(`
		assert(jit.status(), "the compiler is switched off")
		local loops = function() local x = 0 for i = 1, 1000 do x = x + i end return x end
		for i = 1, 100 do loops() end
		assert(require("jit.util").traceinfo(1), "no executable memory")`)
	if err != nil {
		return fmt.Errorf("compile Lua: %w", err)
	}
	return nil
}

// probeHook runs a long loop and arms its hook while it is compiled. The loop ends by itself if the
// hook has no effect.
func probeHook(w *Watchdog) error {
	limits := probeLimits
	limits.EventTime = hookTime
	vm, err := Open(w, limits)
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.Load("probe", []byte("function main() for i = 1, 1e9 do end end")); err != nil {
		return err
	}
	if vm.Call("main") == nil {
		return fmt.Errorf("stop a compiled loop: LuaJIT was built without LUAJIT_ENABLE_CHECKHOOK; build it with tools/luajit/build.sh")
	}
	return nil
}

// ProbeTailCalls tests whether tailcall.c, which reads LuaJIT's stack, recognizes the end of a call
// correctly. If it returns an error, open callers with NoTailCalls: calls of Go functions are
// slower, with the same results.
func ProbeTailCalls(w *Watchdog) error {
	for _, noJIT := range []bool{false, true} {
		if err := probeTailCalls(w, Options{NoJIT: noJIT}, tailCalls); err != nil {
			return fmt.Errorf("recognize the end of a call: %w; tailcall.c does not match the layout of LuaJIT's stack", err)
		}
	}
	return nil
}

// A tailCall is a test case: a function of a script, how its call must end, and how many calls of
// Go it must make before.
type tailCall struct {
	code     string // on a line of its own
	kind     Kind
	returned bool
	calls    int
	results  []any // if it ends without a tail call
}

var tailCalls = []tailCall{
	{code: "function f1() host.note() end", kind: TailCall},
	{code: "function f2() return host.note() end", kind: TailCall, returned: true},
	{code: "function f3(...) host.note(...) end", kind: TailCall},
	{code: "function f4(...) return host.note(...) end", kind: TailCall, returned: true},
	{code: "function f5() local x = host.note() end", kind: TailCall},
	{code: "function f6() for _ = 1, 3 do local x = {} end host.note() end", kind: TailCall},
	{code: "function f7() host.note() return 7 end", calls: 1, results: []any{7.0}},
	{code: "function f8() return (host.note()) end", calls: 1, results: []any{nil}},
	{code: "function f9() return 9, host.note() end", calls: 1, results: []any{9.0}},
	{code: "function f10() local function f() host.note() end f() return 10 end", calls: 1, results: []any{10.0}},
	{code: "function f11() local function f() host.note() end f() end", calls: 1},
	{code: "function f12() pcall(host.note) end", calls: 1},
	{code: "function f13() coroutine.wrap(function() host.note() end)() end", calls: 1},
	{code: "function f14() for i = 1, 3 do host.note(i) end end", calls: 3},
	{code: "function f15() local t = setmetatable({}, {__index = function() host.note() end}) local x = t.x end", calls: 1},
	{code: "function f16() local s = ('a'):gsub('a', function() host.note() end) return s end", calls: 1, results: []any{"a"}},
	{code: "function f17() return -(host.note() or 17) end", calls: 1, results: []any{-17.0}},
}

// probeTailCalls calls each function more often than it takes to compile it.
func probeTailCalls(w *Watchdog, opts Options, functions []tailCall) error {
	calls := 0
	note := Function{Name: "host.note", Call: func(context.Context, []any) ([]any, error) {
		calls++
		return nil, nil
	}}
	opts.EventTime, opts.BatchTime, opts.Memory = probeLimits.EventTime, probeLimits.BatchTime, probeLimits.Memory
	c, err := NewCaller(w, opts, &Host{Functions: []Function{note}})
	if err != nil {
		return err
	}
	defer c.Close()
	code := "local host = require 'host'\n"
	for _, f := range functions {
		code += f.code + "\n"
	}
	if err := c.Engine.Load(context.Background(), "probe", []byte(code)); err != nil {
		return err
	}
	for i, f := range functions {
		if !c.Bind(i, fmt.Sprintf("f%d", i+1)) {
			return errNoMemory
		}
		for range 150 {
			calls = 0
			var call Call
			kind := c.Start(context.Background(), &call, i, nil)
			if kind != f.kind || calls != f.calls {
				return fmt.Errorf("%q ended with %v after %d calls of Go, not with %v after %d", f.code, kind, calls, f.kind, f.calls)
			}
			if err := checkTailCall(c, f, i+2); err != nil {
				return fmt.Errorf("%q: %w", f.code, err)
			}
		}
	}
	return nil
}

// checkTailCall compares the reported tail call with the expected one.
func checkTailCall(c *Caller, f tailCall, line int) error {
	if f.kind != TailCall {
		results, err := DecodeValues(c.Results())
		if err != nil || !slices.Equal(results, f.results) {
			return fmt.Errorf("returned %v, not %v (error %v)", results, f.results, err)
		}
		return nil
	}
	if _, returned := c.TailCall(); returned != f.returned {
		return fmt.Errorf("results counted as returned: %t, want %t", returned, f.returned)
	}
	if place := c.LocateTailCall(); !f.returned && (place.line != line || place.function != line) {
		return fmt.Errorf("call reported in line %d of the function at line %d, want line %d of both", place.line, place.function, line)
	}
	return nil
}
