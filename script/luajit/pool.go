//go:build cgo

package luajit

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/stdlib"
)

// A Script is a loaded Lua script.
type Script struct {
	code   script.Code
	opts   script.Options
	name   string
	source *stdlib.Source
	host   *luajit.Host
	log    *stdlib.Log

	mu     sync.Mutex
	series map[string]script.Series // by how a script named them

	interpreted bool
	watch       *luajit.Watchdog
	size        int // how many engines there can be
	engines     engines
}

// Load compiles the script and runs its text once. A fault in it is a
// *script.Error.
func Load(ctx context.Context, code script.Code, opts script.Options) (*Script, error) {
	return load(ctx, code, opts, false)
}

// LoadInterpreted is Load with the compiler off, which costs about a factor of
// three: for kernels that forbid executable memory, and to rule the compiler out.
func LoadInterpreted(ctx context.Context, code script.Code, opts script.Options) (*Script, error) {
	return load(ctx, code, opts, true)
}

// waiters is how many engines there may be for each core when scripts can wait in
// functions of the embedder's.
const waiters = 8

func load(ctx context.Context, code script.Code, opts script.Options, interpreted bool) (*Script, error) {
	opts.Limits = opts.Limits.WithDefaults()
	modules, err := stdlib.Modules(opts.Modules)
	if err != nil {
		return nil, err
	}
	size := runtime.GOMAXPROCS(0)
	if slices.ContainsFunc(opts.Modules, func(m script.Module) bool { return len(m.Functions) > 0 }) {
		size *= waiters
	}
	s := &Script{
		code: code, opts: opts, interpreted: interpreted,
		source: stdlib.NewSource(code),
		log:    stdlib.NewLog(opts.Log),
		series: make(map[string]script.Series),
		watch:  luajit.NewWatchdog(),
		size:   size, engines: engines{spares: size},
	}
	s.host = &luajit.Host{Functions: functions(modules), File: s.source.Require}
	s.name = s.version()
	if !interpreted {
		s.probe()
	}
	e, err := s.acquire(ctx)
	if err != nil {
		s.watch.Close()
		return nil, err
	}
	s.name = s.version() // with what it required
	s.release(e)
	return s, nil
}

func (s *Script) version() string { return s.code.Name + "@" + s.source.Version() }

// compiles is what Probe finds on this machine, which does not change.
var compiles = sync.OnceValue(func() error {
	w := luajit.NewWatchdog()
	defer w.Close()
	return luajit.Probe(w)
})

// probe switches to the interpreter where compiled code cannot be stopped.
func (s *Script) probe() {
	err := compiles()
	if err == nil {
		return
	}
	s.interpreted = true
	if s.opts.Log != nil {
		s.opts.Log.Warn("scripts run interpreted, about three times slower", "error", err)
	}
}

// String is the script's name and the start of its hash.
func (s *Script) String() string { return s.name }

// Close frees the engines, after the runs that are under way.
func (s *Script) Close() error {
	for range s.size {
		if e, _ := s.engines.take(context.Background()); e != nil {
			e.Close()
		}
	}
	s.watch.Close()
	return nil
}

// acquire takes an engine, made if all are in use and there may be more.
func (s *Script) acquire(ctx context.Context) (*luajit.Engine, error) {
	e, err := s.engines.take(ctx)
	if e != nil || err != nil {
		return e, err
	}
	e, err = s.open(ctx)
	if err != nil {
		s.engines.give(nil)
	}
	return e, err
}

// release gives an engine back, or frees it when a limit has ended it.
func (s *Script) release(e *luajit.Engine) {
	if e.VM.Broken() != luajit.OK {
		e.Close()
		e = nil
	}
	s.engines.give(e)
}

// open makes an engine with the script in it.
func (s *Script) open(ctx context.Context) (*luajit.Engine, error) {
	l := s.opts.Limits
	e, err := luajit.NewEngine(s.watch, luajit.Options{
		EventTime: l.EventTime, BatchTime: l.BatchTime, Memory: l.Memory, NoJIT: s.interpreted,
	}, luajit.Setup{Output: l.Output, Sinks: sinks(s.opts.Sinks), Main: s.code.Func, Value: s.opts.Value, Host: s.host})
	if err != nil {
		return nil, err
	}
	err = e.Load(ctx, s.code.Name, s.code.Text)
	s.drain(e)
	if err != nil {
		e.Close()
		return nil, s.error(err)
	}
	return e, nil
}

// error turns a fault of the engine into one of the script.
func (s *Script) error(err error) error {
	var f *luajit.Fault
	if !errors.As(err, &f) {
		return err
	}
	return s.fault(f)
}

func (s *Script) fault(f *luajit.Fault) *script.Error {
	message, hint, _ := strings.Cut(f.Message, "; ")
	if f.Kind != luajit.Runtime {
		message, hint = f.Message, ""
	}
	fault := &script.Error{Script: f.File, Line: f.Line, Message: message, Hint: hint, Traceback: f.Traceback}
	if f.File == "" {
		fault.Script, fault.Line = s.code.Name, min(f.Line, s.lines())
	}
	return fault
}

// lines is the number of lines of the script: a fault at its very end is in the last.
func (s *Script) lines() int {
	text := strings.TrimRight(string(s.code.Text), "\n")
	return strings.Count(text, "\n") + 1
}
