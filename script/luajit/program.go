//go:build cgo && luajit

package luajit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/stdlib"
)

// A program is loaded code, and what its VMs need.
type program struct {
	code   script.Code
	opts   script.Options
	name   string
	source *stdlib.Source
	host   *luajit.Host
	log    *stdlib.Log

	mu     sync.Mutex
	series map[string]script.Series // by how a script named them

	interpreted bool
	noTailCalls bool
	group       *pool.Group
}

func (p *program) prepare(code script.Code, opts script.Options, interpreted bool) error {
	opts.Limits = opts.Limits.WithDefaults()
	modules, err := stdlib.Modules(opts.Modules, opts.Trial)
	if err != nil {
		return err
	}
	p.code, p.opts, p.interpreted = code, opts, interpreted || opts.Trial.Covers() != nil
	var others []string
	if opts.Extension != nil {
		others = opts.Extension.Modules()
	}
	p.source = stdlib.NewSource(code, modules, others...)
	p.log = stdlib.ScriptLog(&opts)
	p.series = make(map[string]script.Series)
	p.host = &luajit.Host{Functions: functions(append(modules, stdlib.OS(opts.Trial))), File: p.source.Require, Clock: opts.Trial != nil}
	p.name = p.version()
	if !p.interpreted {
		p.probe()
	}
	return nil
}

// joinPool finds the program's VMs in its pool, and has the first one made.
func (p *program) joinPool(ctx context.Context, use string, open opener) error {
	vms := p.opts.Pool
	if vms == nil {
		vms = pool.New(pool.Settings{})
	}
	p.group = vms.Join(p.key(use), func() pool.Maker { return &maker{luajit.NewWatchdog(), open} })
	m, err := p.group.Acquire(ctx)
	if err != nil {
		p.group.Leave()
		return err
	}
	p.name = p.version() // with what it required
	m.Release()
	return nil
}

// key is the same for programs whose VMs are the same. Programs that require files of
// their own share none, because a file may change. Neither do those in a trial.
func (p *program) key(use string) string {
	h := sha256.New()
	add := func(v ...any) { _, _ = fmt.Fprintf(h, "%q\n", fmt.Sprintf("%#v", v)) } // never fails
	add(use, p.interpreted, p.code.Name, string(p.code.Text), p.code.Func, p.opts.Limits, p.opts.Sinks, p.opts.ReturnsValue, p.opts.Timer)
	add(unsafe.SliceData(p.opts.Modules), len(p.opts.Modules))
	add(p.opts.Extension)
	if p.opts.Trial != nil || p.code.Files != nil && bytes.Contains(p.code.Text, []byte("require")) {
		add(fmt.Sprintf("%p", p))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (p *program) version() string { return p.code.Name + "@" + p.source.Version() }

// compiles is what Probe finds on this machine, which does not change.
var compiles = sync.OnceValue(luajit.Probe)

// probe switches to the interpreter where compiled code cannot be stopped.
func (p *program) probe() {
	err := compiles()
	if err == nil {
		return
	}
	p.interpreted = true
	p.warn("scripts run interpreted, about three times slower", err)
}

// tailCalls is what ProbeTailCalls finds, which does not change either.
var tailCalls = sync.OnceValue(func() error {
	w := luajit.NewWatchdog()
	defer w.Close()
	return luajit.ProbeTailCalls(w)
})

// probeTailCalls has calls of Go functions return to Lua where the end of a call is not
// recognized for certain.
func (p *program) probeTailCalls() {
	if err := tailCalls(); err != nil {
		p.noTailCalls = true
		p.warn("a call that ends with a function of Go returns to Lua, which is slower", err)
	}
}

func (p *program) warn(message string, err error) {
	if p.opts.Log != nil {
		p.opts.Log.Warn(message, "error", err)
	}
}

// String is the script's name and the start of its hash.
func (p *program) String() string { return p.name }

// Close frees the VMs, after the runs that are under way, unless an equal script
// has them as well.
func (p *program) Close() error {
	p.group.Leave()
	return nil
}

// An opener makes a VM with the program in it.
type opener func(ctx context.Context, w *luajit.Watchdog) (pool.VM, error)

// A maker makes VMs that one watchdog looks at.
type maker struct {
	watch *luajit.Watchdog
	open  opener
}

// Open implements pool.Maker.
func (m *maker) Open(ctx context.Context) (pool.VM, error) { return m.open(ctx, m.watch) }

// Close implements pool.Maker.
func (m *maker) Close() { m.watch.Close() }

func (p *program) limits() luajit.Options {
	l := p.opts.Limits
	return luajit.Options{EventTime: l.EventTime, BatchTime: l.BatchTime, WallTime: l.WallTime, Memory: l.Memory, NoJIT: p.interpreted, NoTailCalls: p.noTailCalls}
}

// loadInto runs the text of the script in an engine.
func (p *program) loadInto(ctx context.Context, e *luajit.Engine) error {
	if p.opts.Trial.Covers() != nil {
		e.VM.Cover()
	}
	err := e.Load(ctx, p.code.Name, p.code.Text)
	p.readEffects(e)
	p.readLines(e)
	return p.loadError(err)
}

// readLines takes over which lines ran.
func (p *program) readLines(e *luajit.Engine) {
	c := p.opts.Trial.Covers()
	if c == nil {
		return
	}
	e.VM.ReadLines(func(l luajit.Line) { c.Add(cmp.Or(l.File, p.code.Name), l.Line) })
}

// loadError turns a fault of the engine into one of the script.
func (p *program) loadError(err error) error {
	var f *luajit.Error
	if !errors.As(err, &f) {
		return err
	}
	return p.scriptError(f)
}

func (p *program) scriptError(f *luajit.Error) *script.Error {
	message, hint, _ := strings.Cut(p.source.WithHint(cmp.Or(f.File, p.code.Name), f.Line, f.Message), "; ")
	if f.Kind != luajit.Runtime {
		message, hint = f.Message, ""
	}
	fault := &script.Error{Script: f.File, Line: f.Line, Message: message, Hint: hint, Traceback: f.Traceback}
	if f.File == "" {
		fault.Script, fault.Line = p.code.Name, min(f.Line, p.lines())
	}
	return fault
}

// lines is the number of lines of the script: a fault at its very end is in the last.
func (p *program) lines() int {
	text := strings.TrimRight(string(p.code.Text), "\n")
	return strings.Count(text, "\n") + 1
}

// sorted gives functions the same numbers in all VMs.
func sorted(all []luajit.Function) []luajit.Function {
	slices.SortFunc(all, func(a, b luajit.Function) int { return strings.Compare(a.Name, b.Name) })
	return all
}
