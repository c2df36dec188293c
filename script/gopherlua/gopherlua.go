// Package gopherlua runs Lua scripts in pure Go, for builds without LuaJIT. Scripts
// behave as on LuaJIT; package scripttest tests both.
//
// Time and output limits hold as on LuaJIT. The memory limit holds only for single
// strings that library functions create: gopher-lua does not count the memory of a
// script, so scripts must be as trusted as the configuration.
//
// A script is safe for concurrent use. Its VMs come from a pool, and one goroutine at a
// time uses each.
package gopherlua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	lua "github.com/yuin/gopher-lua"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luasyntax"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/stdlib"
)

// Language returns the language for configurations.
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
	group   *pool.Group // of machines

	builders sync.Pool // of *script.ResultBuilder
}

func load(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
	if opts.Extension != nil || opts.Timer {
		return nil, errors.New("a script uses modules in C, such as the node database and the state of a pipeline, only on LuaJIT, which this build does not have")
	}
	opts.Limits = opts.Limits.WithDefaults()
	proto, err := compile(code, opts.Trial.Covers() != nil)
	if err != nil {
		return nil, err
	}
	modules, err := stdlib.Modules(opts.Modules, opts.Trial)
	if err != nil {
		return nil, err
	}
	p := &program{
		file:    code.Name,
		proto:   proto,
		opts:    opts,
		call:    cmp.Or(code.Func, "main"),
		source:  stdlib.NewSource(code, modules),
		modules: modules,
		stats:   opts.Stats,
		lines:   stdlib.ScriptLog(&opts),
	}
	p.name = code.Name + "@" + p.source.Version()
	p.builders.New = func() any { return script.NewResultBuilder(&p.opts, p) }
	vms := opts.Pool
	if vms == nil {
		vms = pool.New(pool.Settings{})
	}
	p.group = vms.Join(fmt.Sprintf("gopherlua %p", p), func() pool.Maker { return maker{p} })
	first, err := p.acquireMachine(ctx)
	if err != nil {
		p.group.Leave()
		return nil, err
	}
	p.name = code.Name + "@" + p.source.Version() // with what it required
	first.member.Release()
	return p, nil
}

// compile compiles code. If covered is true, each of its statements first reports its line.
func compile(code script.Code, covered bool) (*lua.FunctionProto, error) {
	chunk, err := luasyntax.Parse(newReader(code.Text), code.Name)
	if err != nil {
		return nil, syntaxError(code, err)
	}
	if covered {
		chunk = reportLines(chunk, code.Name)
	}
	proto, err := lua.Compile(chunk, code.Name)
	if err != nil {
		return nil, syntaxError(code, err)
	}
	return proto, nil
}

func (p *program) String() string { return p.name }

// Close waits for running batches.
func (p *program) Close() error {
	p.group.Leave()
	return nil
}

// acquireMachine acquires a machine from the pool.
func (p *program) acquireMachine(ctx context.Context) (*machine, error) {
	member, err := p.group.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	m := member.VM.(*machine)
	m.member = member
	return m, nil
}

// Run implements script.Script.
func (p *program) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	res.Reset()
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := p.acquireMachine(ctx)
	if err != nil {
		return err
	}
	result := p.builders.Get().(*script.ResultBuilder)
	defer p.builders.Put(result)
	result.Start(in, res)
	r := run{program: p, in: in, result: result, machine: m}
	defer func() {
		if r.machine != nil { // a new one could be made
			r.machine.member.Release()
		}
	}()
	err = r.runEvents(ctx)
	if ctx.Err() != nil {
		res.Reset()
		return ctx.Err()
	}
	if r.machine == nil { // a new one could not be made
		res.Reset()
		return err
	}
	if failed := result.Finish(r.ran); failed != nil {
		return failed
	}
	return err
}
