//go:build cgo && luajit

package luajit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

var errNope = errors.New("nope")

// hostModule has functions that compute and that wait: hold until release is closed.
func hostModule(release <-chan struct{}) script.Module {
	return script.Module{
		Name: "host",
		Functions: map[string]script.Func{
			"sleep": func(ctx context.Context, args []any) ([]any, error) {
				select {
				case <-time.After(time.Duration(args[0].(float64) * float64(time.Millisecond))):
					return []any{"slept"}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			"hold": func(ctx context.Context, _ []any) ([]any, error) {
				select {
				case <-release:
					return []any{"held"}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			"refuse": func(context.Context, []any) ([]any, error) { return nil, errNope },
		},
		Pure: map[string]script.Func{
			"hello": func(context.Context, []any) ([]any, error) { return nil, nil },
			"take":  func(context.Context, []any) ([]any, error) { return nil, nil },
			"echo":  func(_ context.Context, args []any) ([]any, error) { return args, nil },
			"spin": func(context.Context, []any) ([]any, error) {
				for until := time.Now().Add(5 * time.Millisecond); time.Now().Before(until); {
				}
				return nil, nil
			},
		},
	}
}

const functionsText = `
local host = require "host"
local kept
function helloLua() host.hello() end
function add(a, b) return a + b end
function many(...) return select("#", ...), ... end
function echo(...) return host.echo(...) end
function sleep(ms) local slept = host.sleep(ms) return slept end
function fail() error("wrong") end
function object() error({code = 7}) end
function refuse() host.refuse() end
function catch() return pcall(host.refuse) end
function leak() leaked = 1 end
function endless() while true do end end
function stubborn() while true do pcall(function() while true do end end) end end
function waits() while true do pcall(host.sleep, 0) end end
function burns() while true do host.hello() end end
function spins() while true do host.spin() end end
function hoard() local t = {} while true do t[#t + 1] = ("x"):rep(1000) .. #t end end
function deep(n) if n == 0 then return host.sleep(1) end local ok, v = pcall(deep, n - 1) return v end
function keep() kept = coroutine.running() host.hold() return "mine" end
function hold() local held = host.hold() return held end
function steal() return coroutine.resume(kept) end
function wrapped() local f = coroutine.wrap(function() return host.sleep(1) end) return f() end
function helloThen() host.hello() return 1 end
function hellos() for _ = 1, 100 do host.hello() end end
function takes() host.take(1) end
function takesThen() host.take(1) return 1 end
function takesMany() for i = 1, 100 do host.take(i) end end
function sum(n) local s = 0 for i = 1, n do s = s + i end return s end
`

func loadFunctions(t testing.TB, limits script.Limits, settings pool.Settings) *luajit.CallableScript {
	t.Helper()
	f, _ := loadHeldFunctions(t, limits, settings)
	return f
}

// loadHeldFunctions also returns the function that releases the calls of host.hold.
func loadHeldFunctions(t testing.TB, limits script.Limits, settings pool.Settings) (f *luajit.CallableScript, release func()) {
	t.Helper()
	held := make(chan struct{})
	f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "f.lua", Text: []byte(functionsText)},
		script.Options{Limits: limits, Modules: []script.Module{hostModule(held)}, Pool: pool.New(settings)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, sync.OnceFunc(func() { close(held) })
}

// TestFunctionsWaitInTime calls functions that wait without end, in one call, in many, and as the last
// act of the script.
func TestFunctionsWaitInTime(t *testing.T) {
	const text = `
local host = require "host"
function once() local slept = host.sleep(60000) return slept end
function many() while true do host.sleep(5) end end
function caught() while true do pcall(host.sleep, 60000) end end
function last() return host.sleep(60000) end`
	f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "f.lua", Text: []byte(text)}, script.Options{
		Modules: []script.Module{hostModule(nil)}, Limits: script.Limits{WallTime: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{"once", "many", "caught", "last"} {
		began := time.Now()
		results, err := f.Invoke(t.Context(), name)
		if took := time.Since(began); err == nil || took > 20*time.Second {
			t.Errorf("%s: %v, %v after %v; want an error after 100 ms", name, results, err, took)
		}
	}
}

// waitForSuspended waits until that many calls wait in f, which must all be held.
func waitForSuspended(t *testing.T, f *luajit.CallableScript, calls int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); f.Stats().Suspended < calls; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute, %d calls are suspended, want %d", f.Stats().Suspended, calls)
		}
	}
}

func TestInvoke(t *testing.T) {
	f := loadFunctions(t, script.Limits{}, pool.Settings{})
	list, object := []any{1.0, "a", []any{}}, map[string]any{"k": map[string]any{"n": 1.0}}
	tests := []struct {
		function string
		args     []any
		want     []any
	}{
		{"helloLua", nil, nil},
		{"add", []any{1, 2.5}, []any{3.5}},
		{"many", nil, []any{0.0}},
		{"many", []any{nil, true, false, "s", []byte("b\x00"), 1.5}, []any{6.0, nil, true, false, "s", "b\x00", 1.5}},
		{"many", []any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, []any{10.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0}},
		{"many", []any{list, object}, []any{2.0, list, object}},
		{"echo", []any{list, object, "x"}, []any{list, object, "x"}},
		{"sleep", []any{0}, []any{"slept"}},
		{"deep", []any{20}, []any{"slept"}},
		{"wrapped", nil, []any{"slept"}},
		{"catch", nil, []any{false, "host.refuse: nope"}},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			for range 3 {
				got, err := f.Invoke(t.Context(), test.function, test.args...)
				if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
					t.Fatalf("error %v (-want +got):\n%s", err, diff)
				}
			}
		})
	}
}

func TestInvokeFails(t *testing.T) {
	f := loadFunctions(t, script.Limits{EventTime: 30 * time.Millisecond, Memory: 2 << 20}, pool.Settings{})
	tests := []struct{ function, message string }{
		{"fail", "f.lua:9: wrong"},
		{"object", `f.lua:10: {"code":7}`},
		{"add", "attempt to perform arithmetic"},
		{"refuse", "f.lua:11: host.refuse: nope"},
		{"leak", "attempt to assign to the global 'leaked'"},
		{"endless", "f.lua:14: time limit for one call exceeded"},
		{"stubborn", "time limit for one call exceeded"},
		{"waits", "time limit for one call exceeded"},
		{"burns", "time limit for one call exceeded"},
		{"spins", "time limit for one call exceeded"},
		{"hoard", "memory limit exceeded"},
		{"missing", "has no function missing"},
	}
	for _, test := range tests {
		t.Run(test.function, func(t *testing.T) {
			_, err := f.Invoke(t.Context(), test.function)
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Fatalf("error is %v, want %q", err, test.message)
			}
			var fault *script.Error
			if test.function != "missing" && (!errors.As(err, &fault) || fault.Line == 0 || fault.Traceback == "") {
				t.Errorf("%+v has no place", fault)
			}
			if errors.Is(err, errNope) != (test.function == "refuse") {
				t.Errorf("%v is or is not the error of the function of Go", err)
			}
			if got, err := f.Invoke(t.Context(), "add", 1, 2); err != nil || got[0] != 3.0 {
				t.Errorf("afterwards: %v, %v", got, err)
			}
		})
	}
}

// TestSuspendedCallsOutliveALimit: a VM that hit a limit takes no new calls, but
// those that wait in it end as they should.
func TestSuspendedCallsOutliveALimit(t *testing.T) {
	f, release := loadHeldFunctions(t, script.Limits{EventTime: 20 * time.Millisecond}, pool.Settings{Core: 1, Max: 1})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			got, err := f.Invoke(t.Context(), "hold")
			if err != nil || got[0] != "held" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	waitForSuspended(t, f, 50)
	if _, err := f.Invoke(t.Context(), "endless"); err == nil || !strings.Contains(err.Error(), "time limit for one call exceeded") {
		t.Errorf("an endless call: %v", err)
	}
	release()
	group.Wait()
	if got, err := f.Invoke(t.Context(), "add", 1, 2); err != nil || got[0] != 3.0 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
	if s := f.Stats(); s.Discarded != 1 || s.Made != 2 || s.Suspended != 0 {
		t.Errorf("stats are %+v", s)
	}
}

// TestInvokeGivesUp: a call whose context ends leaves nothing behind.
func TestInvokeGivesUp(t *testing.T) {
	f := loadFunctions(t, script.Limits{}, pool.Settings{Core: 1, Max: 1})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := f.Invoke(ctx, "sleep", 600_000)
		ended <- err
	}()
	waitForSuspended(t, f, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if _, err := f.Invoke(ctx, "add", 1, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if s := f.Stats(); s.Suspended != 0 || s.InUse != 0 || s.Idle != 1 {
		t.Errorf("stats are %+v", s)
	}
}

// TestCallsAreApart: no call can go on with another.
func TestCallsAreApart(t *testing.T) {
	f, release := loadHeldFunctions(t, script.Limits{}, pool.Settings{Core: 1, Max: 1})
	var group sync.WaitGroup
	group.Go(func() {
		if got, err := f.Invoke(t.Context(), "keep"); err != nil || got[0] != "mine" {
			t.Errorf("%v, %v", got, err)
		}
	})
	waitForSuspended(t, f, 1)
	got, err := f.Invoke(t.Context(), "steal")
	if diff := cmp.Diff([]any{false, "cannot resume a coroutine that is not suspended"}, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	release()
	group.Wait()
}

// TestManyCallsWait has far more calls wait than there are VMs.
func TestManyCallsWait(t *testing.T) {
	f := loadFunctions(t, script.Limits{}, pool.Settings{})
	var group sync.WaitGroup
	var failed atomic.Int32
	for i := range 2000 {
		group.Go(func() {
			for range 3 {
				got, err := f.Invoke(t.Context(), "deep", i%5)
				if err != nil || got[0] != "slept" {
					failed.Add(1)
				}
				got, err = f.Invoke(t.Context(), "add", i, 1)
				if err != nil || got[0] != float64(i+1) {
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	if s := f.Stats(); s.Suspended != 0 || s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("stats are %+v", s)
	}
}

func TestInvokeInto(t *testing.T) {
	f := loadFunctions(t, script.Limits{}, pool.Settings{})
	many, err := f.Function("many")
	if err != nil {
		t.Fatal(err)
	}
	var args, results luajit.Values
	args.AddNumber(1.5)
	args.AddString("text")
	args.AddBool(true)
	args.AddNil()
	if err := many.InvokeInto(t.Context(), &args, &results); err != nil {
		t.Fatal(err)
	}
	n, _ := results.Number(0)
	x, _ := results.Number(1)
	text, _ := results.Bytes(2)
	if got := fmt.Sprintln(results.Len(), n, x, string(text), results.Bool(3), results.IsNil(4), results.IsNil(3)); got != "5 4 1.5 text true true false\n" {
		t.Errorf("results are %s", got)
	}
	if all, err := results.All(); err != nil || len(all) != 5 {
		t.Errorf("all are %v, %v", all, err)
	}
}

// TestEqualScriptsShareVMs loads scripts. Those with equal code and limits share VMs.
func TestEqualScriptsShareVMs(t *testing.T) {
	vms := pool.New(pool.Settings{})
	load := func(text string, limits script.Limits) *luajit.CallableScript {
		f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "f.lua", Text: []byte(text)}, script.Options{Pool: vms, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := load("function f() return 1 end", script.Limits{}), load("function f() return 1 end", script.Limits{})
	c, d := load("function f() return 2 end", script.Limits{}), load("function f() return 1 end", script.Limits{Memory: 1 << 20})
	if s := vms.Stats(); s.Scripts != 3 || s.Made != 3 {
		t.Errorf("stats are %+v", s)
	}
	_ = a.Close()
	if got, err := b.Invoke(t.Context(), "f"); err != nil || got[0] != 1.0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, f := range []*luajit.CallableScript{b, c, d} {
		_ = f.Close()
	}
	if s := vms.Stats(); s.Scripts != 0 || s.Idle != 0 || s.Memory != 0 || s.Released != s.Made {
		t.Errorf("after all were closed: %+v", s)
	}
	if _, err := b.Invoke(t.Context(), "f"); !errors.Is(err, pool.ErrClosed) {
		t.Errorf("error is %v", err)
	}
}

// TestScriptsWithFilesShareNoVMs: what they require differs although their texts are equal.
func TestScriptsWithFilesShareNoVMs(t *testing.T) {
	vms := pool.New(pool.Settings{})
	for _, answer := range []string{"one", "two"} {
		files := func(string) ([]byte, error) { return []byte("return '" + answer + "'"), nil }
		code := script.Code{Name: "f.lua", Text: []byte("local answer = require 'lib.answer' function f() return answer end"), Files: files}
		f, err := luajit.LoadCallable(t.Context(), code, script.Options{Pool: vms})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if got, err := f.Invoke(t.Context(), "f"); err != nil || got[0] != answer {
			t.Errorf("%v, %v, want %s", got, err, answer)
		}
	}
}

// TestFunctionsLog holds that a call logs what it printed, before it waits and afterwards.
func TestFunctionsLog(t *testing.T) {
	var log bytes.Buffer
	before := ""
	look := func(context.Context, []any) ([]any, error) { before = log.String(); return nil, nil }
	f, err := luajit.LoadCallable(t.Context(), script.Code{Name: "f.lua", Text: []byte(`
local host = require "host"
function early() print("early") host.look() return 1 end
function late() host.look() print("late") return 1 end
function fails() print("fails") error("wrong") end
`)}, script.Options{
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
		Modules: []script.Module{{Name: "host", Functions: map[string]script.Func{"look": look}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, name := range []string{"early", "late", "fails"} {
		log.Reset()
		before = ""
		if _, err := f.Invoke(t.Context(), name); (err != nil) != (name == "fails") {
			t.Fatal(err)
		}
		if lines := strings.Count(log.String(), "msg="+name); lines != 1 {
			t.Errorf("%s is logged %d times: %s", name, lines, log.String())
		}
		if strings.Contains(before, "msg=early") != (name == "early") {
			t.Errorf("while %s waits, the log is %q", name, before)
		}
	}
}

// TestValuesOfOtherKinds asks for what is not there or is of another kind.
func TestValuesOfOtherKinds(t *testing.T) {
	var v luajit.Values
	if all, err := v.All(); all != nil || err != nil {
		t.Errorf("no values are %v, %v", all, err)
	}
	for _, value := range []any{nil, false, []byte("b"), []any{1.0, map[string]any{"k": "v"}}, 7} {
		if err := v.Add(value); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Add(make(chan int)); err == nil {
		t.Error("a channel became a value")
	}
	want := []any{nil, false, "b", []any{1.0, map[string]any{"k": "v"}}, 7.0}
	all, err := v.All()
	if diff := cmp.Diff(want, all); err != nil || diff != "" || v.Len() != len(want) {
		t.Errorf("%d values, %v (-want +got)\n%s", v.Len(), err, diff)
	}
	for i := -1; i <= len(want); i++ {
		x, isNumber := v.Number(i)
		text, isText := v.Bytes(i)
		got := fmt.Sprintf("%t %t %v %t %s %t", v.IsNil(i), v.Bool(i), x, isNumber, text, isText)
		expected := map[int]string{-1: "true false 0 false  false", 0: "true false 0 false  false", 2: "false false 0 false b true", 4: "false false 7 true  false", 5: "true false 0 false  false"}[i]
		if expected == "" {
			expected = "false false 0 false  false"
		}
		if got != expected {
			t.Errorf("value %d is %s, want %s", i, got, expected)
		}
	}
	v.Reset()
	if err := v.Add([]any{}); err != nil || v.Len() != 1 {
		t.Errorf("%v, %d values", err, v.Len())
	}
	if all, err := v.All(); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}

	f := loadFunctions(t, script.Limits{}, pool.Settings{})
	if _, err := f.Invoke(t.Context(), "add", 1, make(chan int)); err == nil || !strings.Contains(err.Error(), "argument 2 of add: ") {
		t.Errorf("error is %v", err)
	}
}

// TestFaultyFunctions are refused when they are loaded.
func TestFaultyFunctions(t *testing.T) {
	for text, line := range map[string]int{"function f(": 1, "\nerror('no config')": 2} {
		for _, load := range []func(context.Context, script.Code, script.Options) (*luajit.CallableScript, error){luajit.LoadCallable, luajit.LoadCallableInterpreted} {
			_, err := load(t.Context(), script.Code{Name: "f.lua", Text: []byte(text)}, script.Options{})
			var fault *script.Error
			if !errors.As(err, &fault) || fault.Line != line {
				t.Errorf("%s: error is %v", text, err)
			}
		}
	}
	if _, err := luajit.LoadCallable(t.Context(), script.Code{}, script.Options{Modules: []script.Module{{Name: "time"}}}); err == nil || !strings.Contains(err.Error(), "the name is taken") {
		t.Errorf("error is %v", err)
	}
}

func BenchmarkInvoke(b *testing.B) {
	f := loadFunctions(b, script.Limits{}, pool.Settings{})
	for _, name := range []string{"sum", "helloLua", "helloThen", "hellos", "takes", "takesThen", "takesMany"} {
		fn, err := f.Function(name)
		if err != nil {
			b.Fatal(err)
		}
		var args luajit.Values
		if name == "sum" {
			args.AddNumber(1)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := fn.InvokeInto(context.Background(), &args, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, n := range []int{1, 2000} {
			b.Run(fmt.Sprint(name, "/parallel", n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(n)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := fn.InvokeInto(context.Background(), &args, nil); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// TestRequiringTakesTime holds that the time to read files is that of the call that requires them.
func TestRequiringTakesTime(t *testing.T) {
	var reads atomic.Int32
	files := func(string) ([]byte, error) {
		time.Sleep(2 * time.Millisecond)
		reads.Add(1)
		return nil, fs.ErrNotExist
	}
	code := script.Code{Name: "names.lua", Files: files, Text: []byte(`function find(n) for i = 1, n do pcall(require, "kind" .. i) end end`)}
	const limit = 50 * time.Millisecond
	f, err := luajit.LoadCallable(t.Context(), code, script.Options{Limits: script.Limits{EventTime: limit}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Invoke(t.Context(), "find", 1000); err == nil || !strings.Contains(err.Error(), "time limit") {
		t.Errorf("error is %v, want the time limit", err)
	}
	if got := reads.Load(); got > 60 {
		t.Errorf("a call with a time of %v read %d times for 2 ms, want at most 60 times", limit, got)
	}
}
