//go:build cgo

package luajit_test

import (
	"context"
	"errors"
	"sync"
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
inFile = file.refuse
host.echo("the text ends with a call")
`

const otherText = `
local host = require "host"
return {refuse = function() host.refuse() end}
`

func endings(t *testing.T, load func(context.Context, script.Code, script.Options) (*luajit.Functions, error), settings pool.Settings) *luajit.Functions {
	t.Helper()
	host := hostModule()
	host.Functions["wait"] = host.Pure["echo"]
	host.Pure["broken"] = host.Functions["refuse"]
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
		{function: "closes", args: []any{1}, fails: "ends.lua:19: a function cannot be passed to a function of Go", line: 19, traceback: "  ends.lua:19: in function at line 19"},
		{function: "rescued", want: []any{false}},
	}
	for name, load := range map[string]func(context.Context, script.Code, script.Options) (*luajit.Functions, error){
		"compiled": luajit.LoadFunctions, "interpreted": luajit.LoadFunctionsInterpreted,
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
					if errors.Is(err, errNope) != (test.function != "closes") {
						t.Fatalf("%v is or is not the error of the function of Go", err)
					}
				}
			})
		}
	}
}

// TestEndsWithoutVM: a call that ends in a function of Go that waits holds no VM,
// and nothing in one.
func TestEndsWithoutVM(t *testing.T) {
	f := endings(t, luajit.LoadFunctions, pool.Settings{Core: 1, Max: 1})
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
