//go:build linux

package isolate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/stdlib"
)

// An isolatedScript runs in workers. Each is a VM of its pool.
type isolatedScript struct {
	launcher *Launcher
	language string
	code     script.Code
	opts     script.Options
	layout   layout
	name     string
	log      *stdlib.Log
	modules  map[string]script.Module
	group    *pool.Group
	runs     sync.Pool // of *run

	mu    sync.Mutex
	first *process // that loaded the code first, until the pool has it
}

// loader returns a function that loads code of a language in a worker.
func (l *Launcher) loader(language string) func(context.Context, script.Code, script.Options) (script.Script, error) {
	return func(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
		return l.load(ctx, language, code, opts)
	}
}

// scripts counts the loaded scripts, each of which is a key of its pool.
var scripts atomic.Uint64

func (l *Launcher) load(ctx context.Context, language string, code script.Code, opts script.Options) (script.Script, error) {
	if !slices.ContainsFunc(l.languages, func(known script.Language) bool { return known.Name == language }) {
		return nil, fmt.Errorf("language %s was not given to isolate.Init, so that script workers do not have it", language)
	}
	opts.Limits = opts.Limits.WithDefaults()
	s := &isolatedScript{launcher: l, language: language, code: code, opts: opts, layout: newLayout(opts.Limits)}
	s.log = stdlib.NewLog(opts.Log)
	s.modules = make(map[string]script.Module)
	for _, m := range opts.Modules {
		s.modules[m.Name] = m
	}
	p, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.first, s.name = p, p.name
	s.runs.New = func() any { return newRun(s) }
	vms := opts.Pool
	if vms == nil {
		vms = pool.New(pool.Settings{})
	}
	s.group = vms.Join(fmt.Sprintf("process %d", scripts.Add(1)), func() pool.Maker { return maker{s} })
	return s, nil
}

// String implements script.Script.
func (s *isolatedScript) String() string { return s.name }

// Open implements pool.Maker. The code has been loaded before, so that it tries until a
// worker loads it again.
func (m maker) Open(ctx context.Context) (pool.VM, error) {
	s := m.isolatedScript
	s.mu.Lock()
	p, failures := s.first, 0
	s.first = nil
	s.mu.Unlock()
	for p == nil {
		if err := backOff(ctx, failures); err != nil {
			return nil, err
		}
		var err error
		if p, err = s.open(ctx); err != nil {
			failures++
			s.log.Line(slog.LevelWarn, fmt.Sprintf("cannot start a process, attempt %d: %v", failures, err), s.name, "isolate")
		}
	}
	return p, nil
}

// backOff waits after failures in a row: 100 ms, and twice as long each time, up to 10 s.
func backOff(ctx context.Context, failures int) error {
	if failures == 0 {
		return nil
	}
	select {
	case <-time.After(min(10*time.Second, 50*time.Millisecond<<min(failures, 10))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close implements script.Script. The pool ends the workers.
func (s *isolatedScript) Close() error {
	s.group.Leave()
	return nil
}

// A maker is what the pool opens workers with.
type maker struct{ *isolatedScript }

// Close implements pool.Maker.
func (m maker) Close() {
	m.mu.Lock()
	p := m.first
	m.first = nil
	m.mu.Unlock()
	if p != nil {
		p.Close()
	}
}

// loadTime bounds how long a worker may take to start and to load its code, beyond what
// the code itself may take.
const loadTime = 10 * time.Second

// open starts a worker and loads the code in it, again when it was killed from outside.
func (s *isolatedScript) open(ctx context.Context) (*process, error) {
	for tries := 1; ; tries++ {
		p, err := s.startLoaded(ctx)
		died, ok := errors.AsType[*exitError](err)
		if !ok || ctx.Err() != nil {
			return p, err
		}
		if !died.killed() || tries == loadTries {
			return nil, &script.Error{Script: s.code.Name, Message: "while the code was loaded, " + died.Error(), Traceback: died.report}
		}
	}
}

// loadTries is how many workers must be killed while they load code for the code to be
// at fault.
const loadTries = 5

func (s *isolatedScript) startLoaded(ctx context.Context) (*process, error) {
	p, err := s.launcher.startWorker(s.layout)
	if err != nil {
		return nil, err
	}
	if err := s.loadInto(ctx, p); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (s *isolatedScript) loadInto(ctx context.Context, p *process) error {
	e := &encoder{buf: p.memory.request[:0]}
	newLoadRequest(s.language, s.code, &s.opts).encode(e)
	if e.full {
		return fmt.Errorf("the code of %s is larger than %d bytes", s.code.Name, requestBytes)
	}
	answer, err := p.ask(ctx, &request{
		message: message{kind: doLoad, a: uint64(len(e.buf))},
		budget:  budget{loadTime + s.opts.Limits.BatchTime, "loading " + s.code.Name},
		serve:   s.serve(ctx),
	})
	if err != nil {
		return err
	}
	d := &decoder{buf: p.text}
	if answer.kind == failed {
		return readFailure(d)
	}
	var done effects
	p.name = d.text()
	missing := d.text()
	done.decode(d)
	if err := d.end(); err != nil || answer.kind != loaded || len(p.name) > nameMax {
		return p.fail(fmt.Errorf("%w: answer of kind %d to loading", errFrame, answer.kind))
	}
	p.memory.release()
	if missing != "" {
		s.log.Line(slog.LevelWarn, "isolation is incomplete: "+missing, p.name, "isolate")
	}
	s.apply(&done)
	return nil
}

// writeFailure encodes the error of a worker.
func writeFailure(e *encoder, err error) {
	fault, isFault := errors.AsType[*script.Error](err)
	e.bool(isFault)
	if isFault {
		encodeFault(e, fault)
	} else {
		e.text(err.Error())
		e.text(event.HintOf(err))
	}
}

func readFailure(d *decoder) error {
	if d.bool() {
		fault := decodeFault(d)
		if err := d.end(); err != nil {
			return err
		}
		return fault
	}
	message, hint := d.text(), d.text()
	if err := d.end(); err != nil {
		return err
	}
	if hint != "" {
		return event.WithHint(errors.New(message), hint)
	}
	return errors.New(message)
}

// apply makes what a script logged and measured take effect.
func (s *isolatedScript) apply(done *effects) {
	for _, line := range done.lines {
		s.log.Line(line.level, line.text, line.script, line.place)
	}
	if s.opts.Stats == nil || len(done.stats) == 0 && done.refused == 0 {
		return
	}
	if err := s.opts.Stats.Merge(done.stats, done.refused); err != nil {
		s.log.Line(slog.LevelWarn, err.Error(), s.name, "stats")
	}
}

// What a worker can call.
const (
	callFile = iota
	callFunction
)

// serve returns what answers the calls of a worker.
func (s *isolatedScript) serve(ctx context.Context) server {
	return func(text []byte) (reply []byte, waited time.Duration, err error) {
		d := &decoder{buf: text}
		e := &encoder{buf: make([]byte, 0, 64)}
		switch what := d.uint(); {
		case what == callFile && s.code.Files != nil:
			path := d.text()
			if d.end() != nil {
				return nil, 0, d.err
			}
			content, err := s.code.Files(path)
			e.buf = slices.Grow(e.buf, len(content)+errorBytes(err)+64)
			writeFile(e, content, err)
		case what == callFunction:
			module, name := d.text(), d.text()
			args := d.values(0)
			waits, pure := s.modules[module].Functions[name], s.modules[module].Pure[name]
			if d.end() != nil || waits == nil && pure == nil {
				return nil, 0, fmt.Errorf("%w: a call of an unknown function", errFrame)
			}
			if waits == nil {
				limited, cancel := context.WithTimeout(ctx, s.opts.Limits.EventTime)
				defer cancel()
				results, err := callSafely(functionContext{limited, s.opts.Limits.Memory}, pure, args)
				return encodeResults(results, err), 0, nil
			}
			began := time.Now()
			results, err := callSafely(ctx, waits, args)
			return encodeResults(results, err), time.Since(began), nil
		default:
			return nil, 0, fmt.Errorf("%w: an unknown call", errFrame)
		}
		return e.buf, 0, nil
	}
}

func errorBytes(err error) int {
	if err == nil {
		return 0
	}
	return len(err.Error())
}

func writeFile(e *encoder, content []byte, err error) {
	switch {
	case err == nil:
		e.uint(0)
		e.text(string(content))
	case errors.Is(err, fs.ErrNotExist):
		e.uint(1)
		e.text(err.Error())
	default:
		e.uint(2)
		e.text(err.Error())
	}
}

// A functionContext is the context of a function that does not wait.
type functionContext struct {
	context.Context
	memory int
}

// MemoryLeft returns the memory limit: what the script has is known to its worker only.
func (c functionContext) MemoryLeft() int { return c.memory }

// callSafely calls a function of the program. The worker's engine adds the name of the
// function to errors.
func callSafely(ctx context.Context, f script.Func, args []any) (results []any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			results, err = nil, fmt.Errorf("panic: %v", reason)
		}
	}()
	results, err = f(ctx, args)
	for i := range results {
		if err == nil {
			results[i], err = stdlib.Plain(results[i], depthMax/2)
		}
	}
	return results, err
}

// encodeResults encodes what a function returned.
func encodeResults(results []any, err error) []byte {
	if err == nil {
		for size := 4 << 10; size <= textBytes; size *= 8 {
			e := &encoder{buf: make([]byte, 0, min(size, textBytes))}
			e.bool(true)
			if err = e.values(results, 0); err != nil {
				break
			}
			if !e.full {
				return e.buf
			}
		}
		if err == nil {
			err = fmt.Errorf("the results are larger than %d bytes", textBytes)
		}
	}
	text := err.Error()
	text = text[:min(len(text), textBytes/2)]
	e := &encoder{buf: make([]byte, 0, len(text)+64)}
	e.bool(false)
	e.bool(errors.Is(err, script.ErrMemory))
	e.text(text)
	return e.buf
}
