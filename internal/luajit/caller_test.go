//go:build cgo && luajit

package luajit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bystander is part of every script under test: it waits while others misbehave.
const bystander = `
local host = require "host"
function bystander(a) local ok, v = pcall(function() host.wait() return a end) return v, {a} end
`

func newCaller(t *testing.T, opts Options, code string, functions ...string) *Caller {
	t.Helper()
	w := NewWatchdog()
	t.Cleanup(w.Close)
	c, err := NewCaller(w, opts, testHost())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Engine.Load(t.Context(), "calls.lua", []byte(bystander+code)); err != nil {
		t.Fatal(err)
	}
	for i, name := range append([]string{"bystander"}, functions...) {
		if !c.Bind(i, name) {
			t.Fatalf("there is no function %s", name)
		}
	}
	return c
}

// finish resumes a call until it ends.
func finish(c *Caller, call *Call, kind Kind) Kind {
	for kind == Waits {
		r := c.Request(call)
		results, err := r.Call(context.Background())
		kind = c.Resume(context.Background(), call, results, err)
	}
	if kind == TailCall {
		return last(c)
	}
	return kind
}

// last runs the tail call of a call.
func last(c *Caller) Kind {
	f, _ := c.TailCall()
	args, err := c.TailCallArgs()
	if err == nil {
		_, err = f.Call(context.Background(), args)
	}
	if err != nil {
		return Runtime
	}
	return OK
}

func encoded(values ...any) []byte { return encodeValues([]byte{'V'}, values) }

// TestTortureInvoke attacks with each hostile script as a function, while another call waits in the
// same VM. That call must be unaffected.
func TestTortureInvoke(t *testing.T) {
	event := map[string]any{"a": 1.0, "list": []any{3.0, 1.0, 2.0}, "sub": map[string]any{"x": "y"}}
	for _, mode := range []string{"compiled", "interpreted"} {
		for _, script := range hostileScripts(mode == "interpreted") {
			if script.Nodes || script.State {
				continue // TestTorture has a store for these scripts
			}
			t.Run(mode+"/"+script.Name, func(t *testing.T) {
				c := newCaller(t, hostileOptions(script, mode), script.Code(), "main")
				var waits, attacks Call
				if kind := c.Start(t.Context(), &waits, 0, encoded("mine")); kind != Waits {
					t.Fatalf("the bystander ended with %v", kind)
				}
				start := time.Now()
				kind := finish(c, &attacks, c.Start(t.Context(), &attacks, 1, encoded(event)))
				// This VM has less memory than the torture run, which checks each script's allowed
				// ends.
				if ends := append(script.AllowedEnds, "ok", "error", "memory"); !slices.Contains(ends, kind.String()) {
					t.Errorf("ended with %v after %v, want one of %q", kind, time.Since(start), ends)
				}
				if kind.Limit() != (c.Engine.VM.Broken() != OK) {
					t.Errorf("ended with %v, and the VM is broken by %v", kind, c.Engine.VM.Broken())
				}
				if kind := c.Resume(t.Context(), &waits, nil, nil); kind != OK {
					if kind == Memory && attacks.event > 0 && c.Engine.VM.Broken() == Memory {
						return // the VM keeps memory that the attack holds
					}
					t.Fatalf("the bystander ended with %v: %v", kind, c.Engine.VM.LastError())
				}
				got, err := DecodeValues(c.Results())
				if diff := cmp.Diff([]any{"mine", []any{"mine"}}, got); err != nil || diff != "" {
					t.Errorf("error %v (-want +got):\n%s", err, diff)
				}
			})
		}
	}
}

// TestInvokeCallers misuses Go functions from functions of a script.
func TestInvokeCallers(t *testing.T) {
	for _, test := range callers {
		t.Run(test.name, func(t *testing.T) {
			opts := defaults()
			opts.Memory = 8 << 20
			c := newCaller(t, opts, "function attack()\n"+test.code+"\nend", "attack")
			var waits, attacks Call
			if kind := c.Start(t.Context(), &waits, 0, encoded(1.5)); kind != Waits {
				t.Fatalf("the bystander ended with %v", kind)
			}
			kind := finish(c, &attacks, c.Start(t.Context(), &attacks, 1, nil))
			if !slices.Contains(append(test.want, OK, Runtime), kind) {
				t.Errorf("ended with %v, want one of %v", kind, test.want)
			}
			if kind := c.Resume(t.Context(), &waits, nil, nil); kind != OK && kind != Memory {
				t.Errorf("the bystander ended with %v: %v", kind, c.Engine.VM.LastError())
			}
		})
	}
}

// TestCallsAfterALimit ends a call at the memory limit while another one waits: the memory of the
// call is freed, and the other one continues.
func TestCallsAfterALimit(t *testing.T) {
	opts := defaults()
	opts.Memory = 8 << 20
	c := newCaller(t, opts, `function grows() local all = {} while true do all[#all + 1] = ("x"):rep(1000) .. #all end end`, "grows")
	var waits, grows Call
	if kind := c.Start(t.Context(), &waits, 0, encoded("mine")); kind != Waits {
		t.Fatalf("the bystander ended with %v", kind)
	}
	if kind := c.Start(t.Context(), &grows, 1, nil); kind != Memory {
		t.Errorf("ended with %v, want %v", kind, Memory)
	}
	if kind := c.Resume(t.Context(), &waits, nil, nil); kind != OK {
		t.Errorf("the bystander ended with %v: %v", kind, c.Engine.VM.LastError())
	}
	if got, err := DecodeValues(c.Results()); err != nil || !cmp.Equal(got, []any{"mine", []any{"mine"}}) {
		t.Errorf("it returned %v, %v", got, err)
	}
}

// TestCallsInOneVM mixes thousands of calls that wait, fail, or are abandoned.
func TestCallsInOneVM(t *testing.T) {
	c := newCaller(t, defaults(), `
function fails(a) host.wait() error({a}) end
function direct(a) return pcall(host.pure, a) end
function deep(n) if n == 0 then host.wait() return 0 end return 1 + deep(n - 1) end
`, "fails", "direct", "deep")
	type started struct {
		call   Call
		number int
		arg    float64
	}
	var under []started
	for i := range 5000 {
		s := started{number: i % 4, arg: float64(i % 150)}
		kind := c.Start(t.Context(), &s.call, s.number, encoded(s.arg))
		if (s.number == 2) != (kind == OK) || kind != OK && kind != Waits {
			t.Fatalf("call %d of function %d: %v, %v", i, s.number, kind, c.Engine.VM.LastError())
		}
		if kind == Waits {
			under = append(under, s)
		}
		if len(under) < 300 {
			continue
		}
		at := (i * 7919) % len(under)
		s = under[at]
		under = slices.Delete(under, at, at+1)
		if i%11 == 0 {
			c.Drop(&s.call)
			continue
		}
		var failed error
		if i%5 == 0 {
			failed = errors.New("no")
		}
		kind = c.Resume(t.Context(), &s.call, nil, failed)
		if fails := s.number == 1 || s.number == 3 && failed != nil; fails != (kind == Runtime) || !fails && kind != OK {
			t.Fatalf("function %d ended with %v: %v", s.number, kind, c.Engine.VM.LastError())
		}
		want := map[int]string{0: fmt.Sprint([]any{s.arg, []any{s.arg}}), 3: fmt.Sprint([]any{s.arg})}[s.number]
		if got, err := DecodeValues(c.Results()); kind == OK && failed == nil && (err != nil || fmt.Sprint(got) != want) {
			t.Fatalf("function %d returned %v, %v, want %s", s.number, got, err, want)
		}
	}
}
