package goplugin

import (
	"context"
	"log/slog"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/script"
)

// Language offers Go plugins to configurations: the code's name is the path of
// the plugin, unless it comes with its contents, and its function the symbol.
func Language() script.Language {
	return script.Language{
		Name: "plugin",
		Doc:  "a Go plugin (.so) that perigee plugin build made; trusted: only the limit of the output holds",
		Load: load,
	}
}

func load(_ context.Context, code script.Code, opts script.Options) (script.Script, error) {
	content := code.Text
	if len(content) == 0 {
		var err error
		if content, err = read(code.Name); err != nil {
			return nil, err
		}
	}
	p, err := openContent(code.Name, content, code.Func)
	if err != nil {
		return nil, err
	}
	if opts.Value && p.Row == nil {
		return nil, p.wantRow()
	}
	s := &loadedScript{
		plugin: p, name: p.String(), opts: opts, log: opts.Log,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.opts.Limits = opts.Limits.WithDefaults()
	if l := opts.Limits; l.EventTime != 0 || l.BatchTime != 0 || l.Memory != 0 {
		s.log.Warn("limits of time and memory do not hold for a plugin: only that of the output does", "script", s.name)
	}
	return s, nil
}

// A loadedScript runs a plugin on batches.
type loadedScript struct {
	plugin    *Plugin
	name      string
	opts      script.Options
	log       *slog.Logger
	workshops sync.Pool // of *workshop
}

func (s *loadedScript) String() string { return s.name }

// Close does nothing: a plugin stays loaded.
func (s *loadedScript) Close() error { return nil }

// Run implements script.Script.
func (s *loadedScript) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	reset(res)
	w := s.acquire()
	defer s.workshops.Put(w)
	r := &run{script: s, ctx: ctx, workshop: w, in: in, res: res, out: &res.Outputs[0]}
	if !s.opts.Direct() {
		w.sent.Reset()
		r.out = &w.sent
	}
	if err := r.check(); err != nil {
		return err
	}
	if s.plugin.Row != nil {
		r.rows()
	} else {
		r.batch()
	}
	if err := ctx.Err(); err != nil {
		reset(res)
		return err
	}
	if err := r.settle(); err != nil {
		return err
	}
	return r.limit
}

func reset(res *event.Result) {
	for i := range res.Outputs {
		res.Outputs[i].Reset()
	}
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, 0
}

// A workshop is the memory of a run, kept for the next one.
type workshop struct {
	checker    *document.Extractor   // of documents, without columns
	extractors []*document.Extractor // by sink; nil where no columns are wanted
	none       event.Columns
	sent       event.Output // what the plugin emitted, where it is for several sinks
	decoder    decoder
	state      []state  // by event
	data       []byte   // the batch, for a plugin to change
	docs       [][]byte // the good documents in data
	origin     []int    // docs[k] is event origin[k]
}

func (s *loadedScript) acquire() *workshop {
	if ready, ok := s.workshops.Get().(*workshop); ok {
		return ready
	}
	w := &workshop{checker: document.NewExtractor(nil), extractors: make([]*document.Extractor, len(s.opts.Sinks))}
	for i, sink := range s.opts.Sinks {
		if sink.Columns != nil {
			w.extractors[i] = document.NewExtractor(sink.Columns)
		}
	}
	return w
}
