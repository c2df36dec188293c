//go:build cgo && luajit

package luajit

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A CallableScript is a loaded script whose global functions Go calls, one at a time and
// from any number of goroutines. Its sandbox and limits are those of scripts that run on
// events. Limits.EventTime limits the time that one call computes; its waits do not count.
//
// A call that waits in a function of Go lends its VM to other calls, so that a few VMs
// serve thousands of calls.
type CallableScript struct {
	program

	values sync.Pool // *Values

	mu     sync.RWMutex
	byName map[string]*Function
}

// LoadCallable compiles the script and runs its text once. A fault in it is a
// *script.Error.
func LoadCallable(ctx context.Context, code script.Code, opts script.Options) (*CallableScript, error) {
	return loadCallable(ctx, code, opts, false)
}

// LoadCallableInterpreted is LoadCallable with the compiler off.
func LoadCallableInterpreted(ctx context.Context, code script.Code, opts script.Options) (*CallableScript, error) {
	return loadCallable(ctx, code, opts, true)
}

func loadCallable(ctx context.Context, code script.Code, opts script.Options, interpreted bool) (*CallableScript, error) {
	f := &CallableScript{byName: make(map[string]*Function)}
	f.values.New = func() any { return new(Values) }
	if err := f.prepare(code, opts, interpreted); err != nil {
		return nil, err
	}
	f.probeTailCalls()
	if err := f.joinPool(ctx, "functions", f.open); err != nil {
		return nil, err
	}
	return f, nil
}

// A caller is a VM of the pool that hosts calls.
type caller struct {
	*luajit.Caller
	vm    *luajit.VM
	bound []string // functions that have numbers here
	seen  luajit.Activity
}

// Broken implements pool.VM.
func (c *caller) Broken() bool { return c.vm.Broken() != luajit.OK }

// Memory implements pool.VM.
func (c *caller) Memory() int { return c.vm.Memory() }

// Progress implements pool.VM.
func (c *caller) Progress() (uint32, bool) { return c.vm.Progress(&c.seen) }

func (f *CallableScript) open(ctx context.Context, w *luajit.Watchdog) (pool.VM, error) {
	c, err := luajit.NewCaller(w, f.limits(), f.host)
	if err != nil {
		return nil, err
	}
	if err := f.loadInto(ctx, c.Engine); err != nil {
		c.Close()
		return nil, err
	}
	return &caller{Caller: c, vm: c.Engine.VM}, nil
}

// number returns that of a function in this VM, or -1 if the script has no such one.
// The numbers differ from VM to VM, so that equal scripts can share them.
func (c *caller) number(name string) int {
	for i, bound := range c.bound {
		if bound == name {
			return i
		}
	}
	if !c.Bind(len(c.bound), name) {
		return -1
	}
	c.bound = append(c.bound, name)
	return len(c.bound) - 1
}

// A Function is one of a script's.
type Function struct {
	name  string
	group *pool.Group
	of    *CallableScript
}

// Function returns a global function of the script.
func (f *CallableScript) Function(name string) (*Function, error) {
	f.mu.RLock()
	fn := f.byName[name]
	f.mu.RUnlock()
	if fn != nil {
		return fn, nil
	}
	return f.find(name)
}

func (f *CallableScript) find(name string) (*Function, error) {
	m, err := f.group.Acquire(context.Background())
	if err != nil {
		return nil, err
	}
	number := m.VM.(*caller).number(name)
	m.Release()
	if number < 0 {
		return nil, f.missingError(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := &Function{name: name, group: f.group, of: f}
	f.byName[name] = fn
	return fn, nil
}

func (f *CallableScript) missingError(name string) error {
	return fmt.Errorf("%s has no function %s: define 'function %s(…)' as a global, without 'local'", f.code.Name, name, name)
}

// Invoke calls a global function by its name, see Function.Invoke.
func (f *CallableScript) Invoke(ctx context.Context, function string, args ...any) ([]any, error) {
	fn, err := f.Function(function)
	if err != nil {
		return nil, err
	}
	return fn.Invoke(ctx, args...)
}

// Stats are those of the pool that has the VMs.
func (f *CallableScript) Stats() pool.Stats { return f.group.Pool().Stats() }

// Invoke calls the function and returns what it returns. Arguments are nil, bools,
// any of Go's numbers, strings, []byte, []any and map[string]any; results are as a
// script.Func gets them.
//
// An error that the script raises comes as a *script.Error. An error of a function
// of Go is raised in the script, which can catch it; when it does not, errors.Is and
// errors.As find it in the error here. When ctx ends, a call that waits is given up;
// one that runs ends at its next function of Go, or by its time limit.
func (fn *Function) Invoke(ctx context.Context, args ...any) ([]any, error) {
	if len(args) == 0 {
		return fn.call(ctx, nil, luajit.DecodeValues)
	}
	v := fn.of.values.Get().(*Values)
	defer fn.of.values.Put(v)
	v.Reset()
	for i, arg := range args {
		if err := v.Add(arg); err != nil {
			return nil, fmt.Errorf("argument %d of %s: %w", i+1, fn.name, err)
		}
	}
	return fn.call(ctx, v, luajit.DecodeValues)
}

// InvokeInto is Invoke without allocations: it takes the arguments from args and
// puts the results into results. Either may be nil.
func (fn *Function) InvokeInto(ctx context.Context, args, results *Values) error {
	_, err := fn.call(ctx, args, func(encoded []byte) ([]any, error) {
		if results != nil {
			results.set(encoded)
		}
		return nil, nil
	})
	return err
}

// call makes a call, and returns what take makes of its results.
func (fn *Function) call(ctx context.Context, args *Values, take func(encoded []byte) ([]any, error)) ([]any, error) {
	m, err := fn.group.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c := m.VM.(*caller)
	var call luajit.Call
	number := 0
	if len(c.bound) == 0 || c.bound[0] != fn.name {
		if number = c.number(fn.name); number < 0 {
			m.Release()
			return nil, fn.of.missingError(fn.name)
		}
	}
	kind := c.Start(ctx, &call, number, args.encoded())
	var cause error
	for kind == luajit.Waits {
		if kind, err = fn.serve(ctx, m, &call, &cause); err != nil {
			return nil, err
		}
	}
	if kind == luajit.TailCall {
		return fn.endTailCall(ctx, m, take)
	}
	var results []any
	if kind == luajit.OK {
		results, err = take(c.Results())
	} else {
		err = fn.scriptError(c, cmp.Or(c.Cause(), cause))
	}
	if c.Engine.HasEffects() {
		fn.of.readEffects(c.Engine)
	}
	fn.of.readLines(c.Engine)
	m.Release()
	return results, err
}

// serve calls the function of Go that the call waits for, and goes on with it. An
// error says that the call was given up, and that the VM is no longer held.
func (fn *Function) serve(ctx context.Context, m *pool.Member, call *luajit.Call, cause *error) (luajit.Kind, error) {
	c := m.VM.(*caller)
	request := c.Request(call)
	if c.Engine.HasEffects() {
		fn.of.readEffects(c.Engine)
	}
	m.Suspend()
	var results []any
	results, *cause = request.Call(ctx)
	call.Charge(&request)
	m.Resume()
	if err := ctx.Err(); err != nil {
		c.Drop(call)
		m.Release()
		return 0, err
	}
	return c.Resume(ctx, call, results, *cause), nil
}

// A functionError is an error of a script that a function of Go began.
type functionError struct {
	err   *script.Error
	cause error
}

func (r *functionError) Error() string { return r.err.Error() }

// Unwrap makes both be found.
func (r *functionError) Unwrap() []error { return []error{r.err, r.cause} }

// scriptError tells how the call failed.
func (fn *Function) scriptError(c *caller, cause error) error {
	fault := c.vm.LastError()
	if fault.Kind == luajit.EventTime {
		fault.Message = "time limit for one call exceeded"
	}
	err := fn.of.scriptError(fault)
	if cause != nil && fault.Kind == luajit.Runtime && strings.HasSuffix(fault.Message, cause.Error()) {
		return &functionError{err, cause}
	}
	return err
}
