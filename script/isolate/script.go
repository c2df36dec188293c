//go:build linux

package isolate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/child"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/stdlib"
)

// An isolatedScript runs in workers, which are the VMs of its pool.
type isolatedScript struct {
	language string
	fromFile bool // see script.Language.FromFile
	code     script.Code
	opts     script.Options
	layout   layout
	name     string
	log      *stdlib.Log
	modules  map[string]script.Module
	group    *pool.Group
	runs     sync.Pool // of *run

	mu    sync.Mutex
	first *process // the first worker that loaded the code, until the pool takes it
}

// loader returns a function that loads code of a language in a worker.
func (l *Launcher) loader(language string) func(context.Context, script.Code, script.Options) (script.Script, error) {
	return func(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
		return l.load(ctx, language, code, opts)
	}
}

// scripts counts loaded scripts. The count is the script's key in the pool.
var scripts atomic.Uint64

func (l *Launcher) load(ctx context.Context, language string, code script.Code, opts script.Options) (script.Script, error) {
	i := slices.IndexFunc(l.languages, func(known script.Language) bool { return known.Name == language })
	if i < 0 {
		return nil, fmt.Errorf("script workers do not support language %s: pass it to isolate.Init", language)
	}
	if opts.Extension != nil || opts.Timer {
		return nil, errors.New("a script in a process of its own cannot use the node database or the state of a pipeline: leave out isolate: process")
	}
	opts.Limits = opts.Limits.WithDefaults()
	s := &isolatedScript{language: language, fromFile: l.languages[i].FromFile, code: code, opts: opts, layout: newLayout(opts.Limits)}
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

// Open implements pool.Maker. The code has been loaded before, so Open retries until a worker loads
// it again.
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

// backOff waits after consecutive failures: 100 ms, doubled each time, up to 10 s.
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

// A maker opens workers for the pool.
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

// loadTime limits the time to start a worker and load its code, in addition to the time limit of
// the code itself.
const loadTime = 10 * time.Second

// open starts a worker and loads the code in it. It retries if the worker was killed from outside.
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

// loadTries is the number of workers killed while loading code after which the code counts as the
// cause.
const loadTries = 5

func (s *isolatedScript) startLoaded(ctx context.Context) (*process, error) {
	code := s.code
	if s.fromFile {
		folder, err := s.copyCode()
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		code.File, code.Text, code.Files = filepath.Join(folder, codeFile), nil, nil
	}
	p, err := startWorker(s.layout, code.File)
	if err != nil {
		return nil, err
	}
	if err := s.loadInto(ctx, p, code); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// codeFile is the name of a copy of code.
const codeFile = "plugin.so"

// copyCode copies code that is loaded from a file to a new folder. The worker can open no other
// file, and later changes of the original do not affect running code.
func (s *isolatedScript) copyCode() (folder string, err error) {
	content := s.code.Text
	if len(content) == 0 {
		if content, err = os.ReadFile(s.code.Name); err != nil {
			return "", fmt.Errorf("read %s: %w", s.language, err)
		}
	}
	if folder, err = os.MkdirTemp("", "perigee-"+s.language+"-"); err != nil {
		return "", fmt.Errorf("copy %s for its process: %w", s.code.Name, err)
	}
	if err := os.WriteFile(filepath.Join(folder, codeFile), content, 0o500); err != nil {
		_ = os.RemoveAll(folder)
		return "", fmt.Errorf("copy %s for its process: %w", s.code.Name, err)
	}
	return folder, nil
}

func (s *isolatedScript) loadInto(ctx context.Context, p *process, code script.Code) error {
	e := &encoder{buf: p.memory.request[:0]}
	newLoadRequest(s.language, code, &s.opts).encode(e)
	if e.full {
		return fmt.Errorf("the code of %s is larger than %d bytes", s.code.Name, requestBytes)
	}
	answer, err := p.ask(ctx, &request{
		message: message{kind: doLoad, a: uint64(len(e.buf))},
		budget:  budget{loadTime + s.opts.Limits.BatchTime, "loading " + s.code.Name},
		serve:   s.serveLoading(ctx, p.process.Pid, code.Files),
	})
	if err != nil {
		return err
	}
	name, missing, done, err := readLoaded(&answer, p.text)
	if errors.Is(err, errFrame) {
		return p.fail(err)
	}
	if err != nil {
		return err
	}
	p.name = name
	p.memory.release()
	if missing = append(missing, p.process.Missing...); len(missing) > 0 {
		s.log.Line(slog.LevelWarn, "isolation is incomplete: "+strings.Join(missing, "; "), p.name, "isolate")
	}
	s.apply(&done)
	return nil
}

// writeFailure encodes an error for the parent.
func writeFailure(e *encoder, err error) {
	fault, isFault := errors.AsType[*script.Error](err)
	e.bool(isFault)
	if isFault {
		encodeFault(e, fault)
	} else {
		e.short(err.Error(), textMax)
		e.short(event.HintOf(err), textMax)
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
	message, hint := d.short(textMax), d.short(textMax)
	if err := d.end(); err != nil {
		return err
	}
	if hint != "" {
		return event.WithHint(errors.New(message), hint)
	}
	return errors.New(message)
}

// readLoaded decodes the answer to a request to load code. Its error is the code's error, or
// errFrame.
func readLoaded(answer *message, text []byte) (name string, missing []string, done effects, err error) {
	d := &decoder{buf: text}
	switch answer.kind {
	case failed:
		return "", nil, done, readFailure(d)
	case loaded:
	default:
		return "", nil, done, fmt.Errorf("%w: answer of kind %d to loading", errFrame, answer.kind)
	}
	name = d.short(nameMax)
	for n := d.int(missingMax); n > 0 && d.err == nil; n-- {
		missing = append(missing, d.short(nameMax))
	}
	done.decode(d)
	return name, missing, done, d.end()
}

// apply logs the lines and records the measurements of a script.
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

// Calls that a worker can make.
const (
	callFile     = iota // only while it loads
	callMapped          // only while it loads
	callFunction        // at any time
)

// serve returns the server for calls of a worker whose code is loaded.
func (s *isolatedScript) serve(ctx context.Context) server {
	return func(text []byte) (reply []byte, waited time.Duration, err error) {
		d := &decoder{buf: text, memory: s.opts.Limits.Memory}
		if d.uint() != callFunction {
			return nil, 0, fmt.Errorf("%w: a call that running code cannot make", errFrame)
		}
		module, name := d.short(nameMax), d.short(nameMax)
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
		limited, cancel := context.WithTimeout(ctx, s.opts.Limits.WallTime)
		defer cancel()
		results, err := callSafely(limited, waits, args)
		return encodeResults(results, err), time.Since(began), nil
	}
}

// filesMax limits the number of files that a worker may request while it loads, found or not.
const filesMax = 2 * script.RequiredFilesMax

// serveLoading returns the server for calls of a worker while it loads. files reads a file that the
// code requires; nil means that there are none.
func (s *isolatedScript) serveLoading(ctx context.Context, pid int, files func(string) ([]byte, error)) server {
	calls, asked, bytes := s.serve(ctx), 0, 0
	return func(text []byte) (reply []byte, waited time.Duration, err error) {
		d := &decoder{buf: text}
		switch d.uint() {
		case callMapped:
			mapped, err := child.MappedMemory(strconv.Itoa(pid))
			e := &encoder{buf: make([]byte, 0, 16)}
			e.uint(mapped)
			return e.buf, 0, err
		case callFile:
			path := d.short(nameMax)
			if d.end() != nil || files == nil || !script.IsModulePath(path) {
				return nil, 0, fmt.Errorf("%w: a file that no code can require", errFrame)
			}
			if asked++; asked > filesMax || bytes > script.RequiredBytesMax {
				return encodeFile(nil, fmt.Errorf("a script may request at most %d files of %d MiB in all", filesMax, script.RequiredBytesMax>>20)), 0, nil
			}
			content, err := files(path)
			bytes += len(content)
			return encodeFile(content, err), 0, nil
		}
		return calls(text)
	}
}

// encodeFile encodes a file that code requires, or the error.
func encodeFile(content []byte, err error) []byte {
	kind, text := uint64(0), string(content)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, text = 1, err.Error()
	case err != nil:
		kind, text = 2, err.Error()
	}
	e := &encoder{buf: make([]byte, 0, len(text)+64)}
	e.uint(kind)
	e.text(text)
	return e.buf
}

// A functionContext is the context of a function that does not wait.
type functionContext struct {
	context.Context
	memory int
}

// MemoryLeft returns the memory limit, since only the worker knows how much memory the script uses.
func (c functionContext) MemoryLeft() int { return c.memory }

// callSafely calls a Go function and recovers from a panic. The worker's engine adds the function's
// name to errors.
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

// encodeResults encodes the results of a function.
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
