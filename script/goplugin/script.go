package goplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/script"
)

// Language returns the language for configurations. The code's name is the path of the
// plugin, unless Text holds its contents; its function is the symbol.
func Language() script.Language {
	return script.Language{
		Name: "plugin",
		Doc:  "a Go plugin (.so) built with perigee plugin build; trusted, and only the output limit applies, unless isolate: process",
		Load: load, FromFile: true,
	}
}

func load(_ context.Context, code script.Code, opts script.Options) (script.Script, error) {
	if opts.Extension != nil || opts.Timer {
		return nil, errors.New("a plugin cannot use the node database or the state of a pipeline: only scripts in Lua can")
	}
	content := code.Text
	if len(content) == 0 {
		var err error
		if content, err = read(cmp.Or(code.File, code.Name)); err != nil {
			return nil, err
		}
	}
	p, err := openContent(code, content)
	if err != nil {
		return nil, err
	}
	if opts.ReturnsValue && p.Row == nil {
		return nil, p.errNotRowFunc()
	}
	s := &loadedScript{
		plugin: p, name: p.String(), opts: opts, log: opts.Log,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.opts.Limits = opts.Limits.WithDefaults()
	if l := opts.Limits; !opts.Isolated && (l.EventTime != 0 || l.BatchTime != 0 || l.WallTime != 0 || l.Memory != 0) {
		s.log.Warn("time and memory limits do not apply to a plugin, only the output limit", "script", s.name)
	}
	return s, nil
}

// A loadedScript runs a plugin on batches.
type loadedScript struct {
	plugin     *Plugin
	name       string
	opts       script.Options
	log        *slog.Logger
	workspaces sync.Pool // of *workspace
}

func (s *loadedScript) String() string { return s.name }

// Close does nothing: a plugin stays loaded.
func (s *loadedScript) Close() error { return nil }

// Run implements script.Script.
func (s *loadedScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	w := s.acquire()
	defer s.workspaces.Put(w)
	r := &run{script: s, ctx: ctx, workspace: w, in: in, res: res}
	if err := r.start(); err != nil {
		return err
	}
	if s.plugin.Row != nil {
		r.runRows()
	} else {
		r.runBatch()
	}
	if err := ctx.Err(); err != nil {
		res.Reset()
		return err
	}
	if err := r.result.Finish(r.ran); err != nil {
		return err
	}
	return r.limit
}

// A workspace is the reusable memory of a run.
type workspace struct {
	result  *script.ResultBuilder
	checker *document.Checker
	decoder decoder
	data    []byte   // the batch, for a plugin to change
	docs    [][]byte // the good documents in data
	origin  []int    // docs[k] is event origin[k]
}

func (s *loadedScript) acquire() *workspace {
	if ready, ok := s.workspaces.Get().(*workspace); ok {
		return ready
	}
	w := &workspace{result: script.NewResultBuilder(&s.opts, s), checker: document.NewChecker()}
	if !s.opts.ReturnsValue {
		w.result.Invalid = func(reason string) (string, error) {
			return "script", fmt.Errorf("%s produced an invalid document: %s", s.plugin.symbol, reason)
		}
	}
	return w
}
