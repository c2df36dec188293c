// Package gopherlua runs Lua scripts in pure Go, for builds without cgo. Scripts
// see the same as on LuaJIT; package scripttest holds both to it.
//
// Time and output limits hold as on LuaJIT. The memory limit holds only for
// single strings that the library makes: nothing in gopher-lua counts what a
// script holds, so scripts must be as trusted as the configuration.
//
// A script is safe for concurrent use: it keeps a bounded pool of VMs, each used
// by one goroutine at a time.
package gopherlua

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/yuin/gopher-lua/parse"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// Language offers the engine.
func Language() script.Language {
	return script.Language{
		Name: "gopherlua",
		Doc:  "Lua 5.1 in pure Go: no cgo needed, slower than luajit, without a memory limit.",
		Load: load,
	}
}

// A program is a loaded script.
type program struct {
	name  string // with version
	file  string
	proto *lua.FunctionProto
	opts  script.Options
	call  string // the function

	source  *stdlib.Source
	modules []script.Module
	stats   *script.Stats
	lines   *stdlib.Log
	pool    chan *machine // nil stands for a machine that is not made yet
}

// waiters is how many machines there may be for each core when scripts can wait in
// functions of the embedder's.
const waiters = 8

func load(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
	opts.Limits = opts.Limits.WithDefaults()
	proto, err := compile(code)
	if err != nil {
		return nil, err
	}
	modules, err := stdlib.Modules(opts.Modules)
	if err != nil {
		return nil, err
	}
	size := runtime.GOMAXPROCS(0)
	if slices.ContainsFunc(opts.Modules, func(m script.Module) bool { return len(m.Functions) > 0 }) {
		size *= waiters
	}
	p := &program{
		file:    code.Name,
		proto:   proto,
		opts:    opts,
		call:    cmp.Or(code.Func, "main"),
		source:  stdlib.NewSource(code),
		modules: modules,
		stats:   opts.Stats,
		lines:   stdlib.NewLog(opts.Log),
		pool:    make(chan *machine, size),
	}
	p.name = code.Name + "@" + p.source.Version()
	first, err := newMachine(ctx, p)
	if err != nil {
		return nil, err
	}
	p.name = code.Name + "@" + p.source.Version() // with what it required
	p.pool <- first
	for len(p.pool) < cap(p.pool) {
		p.pool <- nil
	}
	return p, nil
}

func compile(code script.Code) (*lua.FunctionProto, error) {
	chunk, err := parse.Parse(newReader(code.Text), code.Name)
	if err != nil {
		return nil, syntaxError(code, err)
	}
	proto, err := lua.Compile(chunk, code.Name)
	if err != nil {
		return nil, syntaxError(code, err)
	}
	return proto, nil
}

func (p *program) String() string { return p.name }

// Close waits for the machines that run.
func (p *program) Close() error {
	for range cap(p.pool) {
		if m := <-p.pool; m != nil {
			m.close()
		}
	}
	return nil
}

// take waits for a machine.
func (p *program) take(ctx context.Context) (*machine, error) {
	select {
	case m := <-p.pool:
		if m != nil {
			return m, nil
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m, err := newMachine(ctx, p)
	if err != nil {
		p.pool <- nil
	}
	return m, err
}

// Run implements script.Script.
func (p *program) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	reset(res)
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := p.take(ctx)
	if err != nil {
		return err
	}
	r := run{program: p, in: in, res: res, machine: m, out: m.output(res)}
	defer func() { p.pool <- r.machine }()
	err = r.events(ctx)
	if ctx.Err() != nil {
		reset(res)
		return ctx.Err()
	}
	if r.machine == nil { // a new one could not be made
		reset(res)
		return err
	}
	if failed := r.finish(); failed != nil {
		return failed
	}
	return err
}

func reset(res *event.Result) {
	for i := range res.Outputs {
		res.Outputs[i].Reset()
	}
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, 0
}
