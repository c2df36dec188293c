//go:build cgo && luajit

package luajit

import (
	"context"
	"sync"

	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// A Script is a loaded Lua script.
type Script struct {
	program
	documentsOnly bool // all rows are for one output, without columns
	columnsOnly   bool // all rows are for one output and have only columns, also when a limit ends a run

	runs sync.Pool // of *run
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

func load(ctx context.Context, code script.Code, opts script.Options, interpreted bool) (*Script, error) {
	s := new(Script)
	if err := s.prepare(code, opts, interpreted); err != nil {
		return nil, err
	}
	s.documentsOnly = opts.Direct() && opts.Sinks[0].Columns == nil
	s.runs.New = s.newRun
	s.columnsOnly = luajit.OmitsDocuments(sinks(opts.Sinks))
	if err := s.joinPool(ctx, "batches", s.open); err != nil {
		return nil, err
	}
	return s, nil
}

// An engine is a VM of the pool that runs batches.
type engine struct {
	*luajit.Engine
	member *pool.Member // while somebody holds it
	seen   luajit.Activity
}

// Broken implements pool.VM.
func (e *engine) Broken() bool { return e.VM.Broken() != luajit.OK }

// Memory implements pool.VM.
func (e *engine) Memory() int { return e.VM.Memory() }

// Progress implements pool.VM.
func (e *engine) Progress() (uint32, bool) { return e.VM.Progress(&e.seen) }

// open makes an engine with the script in it.
func (s *Script) open(ctx context.Context, w *luajit.Watchdog) (pool.VM, error) {
	e, err := luajit.NewEngine(w, s.limits(), luajit.Setup{
		Output: s.opts.Limits.Output, Sinks: sinks(s.opts.Sinks), Main: s.code.Func, ReturnsValue: s.opts.ReturnsValue, Host: s.host,
		Extension: s.opts.Extension, Timer: s.opts.Timer,
	})
	if err != nil {
		return nil, err
	}
	if err := s.loadInto(ctx, e); err != nil {
		e.Close()
		return nil, err
	}
	return &engine{Engine: e}, nil
}

func (s *Script) acquire(ctx context.Context) (*engine, error) {
	m, err := s.group.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	e := m.VM.(*engine)
	if e.member != m {
		e.member = m
	}
	return e, nil
}

func (s *Script) release(e *engine) { e.member.Release() }
