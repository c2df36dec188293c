package engine

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb/lua"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/isolate"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/passthrough"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/reload"
)

// code is all the code of a pipeline: that of its script and of its computed columns.
type code struct {
	pipeline    string
	languages   []script.Language
	isolation   *isolate.Launcher
	hasScript   bool
	sinks       []script.Sink
	pieces      []piece           // the script's comes first
	columns     []computed.Column // without their scripts
	columnIndex []int             // for each piece of a column, its index in columns
	now         func() time.Time  // of make://timestamp
	replaced    func()            // see reload.Config
	log         *slog.Logger
	mistakes    []error // in the first version, which loads nevertheless
}

// A piece is one text of code and the way it is loaded.
type piece struct {
	origin      loader.Origin
	language    string
	function    string
	isolated    bool // in processes of its own
	options     script.Options
	from        configured
	commentHint string // the hint if YAML has cut the code at a comment
}

// configured is where code stands in the configuration.
type configured interface {
	// At adds the place to an error that has none.
	At(err error, hint string) error
	// Locate turns a place in the code into one in the configuration, if the code stands there.
	Locate(fault *config.Error, code string) *config.Error
}

// pluginLanguage is the language of code in a file that ends in .so.
const pluginLanguage = "plugin"

// locateCode finds out where the code of a pipeline is, for these sinks, and reads none of it.
// inline is the name of code in the configuration.
func (a *Assembly) locateCode(p *Pipeline, sinks []script.Sink, inline string, log *slog.Logger) (*code, error) {
	c := &code{pipeline: p.Config.Name, languages: a.opts.Kinds.Languages, isolation: a.opts.Isolation, sinks: sinks, log: log, now: time.Now}
	if s := p.Config.Script; s != nil {
		c.hasScript = true
		options := c.scriptOptions(len(p.Config.Computed) > 0)
		options.Limits, options.Log, options.Modules = script.Limits(s.Limits), log, a.opts.Kinds.Modules
		options.Stats, options.Pool = a.shared.stats, a.poolOf(p)
		switch {
		case p.Config.State != nil:
			options.Extension = lua.ForState(p.Config.Reads...)
		case len(p.Config.Reads) > 0:
			options.Extension = lua.ForReads(p.Config.Reads...)
		}
		isolated := s.Isolate == config.IsolateProcess
		if isolated && c.isolation == nil {
			return nil, s.At(errors.New("isolate: this program does not start script workers"), "call isolate.Init first in main, and set engine.Options.Isolation to its result")
		}
		err := c.add(piece{language: s.Language, function: s.Func, isolated: isolated, options: options, from: s, commentHint: s.CommentHint(s.Text)}, s.Text, a.Config.Base, inline)
		if err != nil {
			return nil, err
		}
	}
	for _, column := range p.Config.Computed {
		if err := a.locateColumn(c, column, log); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// poolOf returns the pool for the VMs of a pipeline's script, in all its versions: the
// shared one, unless the configuration has settings for it.
func (a *Assembly) poolOf(p *Pipeline) *pool.Pool {
	if p.Config.Script.Pool == (config.Pool{}) {
		return a.shared.pool
	}
	p.pool = pool.New(pool.Settings(p.Config.Script.Pool))
	return p.pool
}

// scriptOptions says what the script is loaded for. Computed columns stand between the
// script and the sinks.
func (c *code) scriptOptions(computed bool) script.Options {
	if !computed {
		return script.Options{Sinks: c.sinks}
	}
	sinks := slices.Clone(c.sinks)
	for i := range sinks {
		sinks[i].Columns = nil
	}
	return script.Options{Sinks: sinks, SingleOutput: true}
}

func (c *code) add(p piece, text, base, name string) (err error) {
	if p.origin, err = loader.Locate(text, base, name); err != nil {
		return p.from.At(err, "")
	}
	c.pieces = append(c.pieces, p)
	return nil
}

func (a *Assembly) locateColumn(c *code, of config.Computed, log *slog.Logger) error {
	typ, _ := event.ParseType(of.Type) // the configuration has checked it
	column := computed.Column{Name: of.Name, Type: typ}
	if computed.IsBuilt(of.Func) {
		column.Builtin = of.Func
	}
	if err := column.Check(); err != nil {
		return of.At(err, "")
	}
	c.columns = append(c.columns, column)
	if column.Builtin != "" {
		return nil
	}
	c.columnIndex = append(c.columnIndex, len(c.columns)-1)
	p := piece{language: c.languages[0].Name, function: of.FuncName, from: of, commentHint: of.CommentHint(of.Func), options: script.Options{
		Sinks: []script.Sink{{}}, ReturnsValue: true, Log: log, Modules: a.opts.Kinds.Modules,
		Stats: a.shared.stats, Pool: a.shared.pool,
	}}
	if strings.HasSuffix(of.Func, ".so") {
		p.language = pluginLanguage
		if !slices.Contains(a.opts.Kinds.names().Languages, pluginLanguage) {
			return of.At(errors.New("this build cannot load Go plugins"), "use a build with cgo for Linux, macOS or FreeBSD")
		}
	}
	return c.add(p, of.Func, a.Config.Base, "column "+of.Name)
}

// load loads the code. The script that it returns replaces itself when the code
// changes, unless all of it is built in.
func (c *code) load(ctx context.Context, l *loader.Loader, log *slog.Logger) (script.Script, error) {
	if len(c.pieces) == 0 {
		return c.loadVersion(ctx, nil, false)
	}
	settings := reload.Config{Loader: l, Load: c.loadVersion, Sinks: len(c.sinks), Log: log, Replaced: c.replaced}
	for _, p := range c.pieces {
		settings.Origins = append(settings.Origins, p.origin)
	}
	loaded, err := reload.New(ctx, settings)
	if unread, ok := errors.AsType[*reload.ReadError](err); ok {
		p := c.pieces[unread.Origin]
		return nil, p.from.At(unread.Err, cmp.Or(event.HintOf(err), p.commentHint, p.hint(err)))
	}
	if err != nil {
		return nil, err
	}
	return loaded, nil
}

// loadVersion loads one version of the code: texts are those of the pieces. It returns
// the faults of all of them. A trial leaves no trace in the log or the statistics.
func (c *code) loadVersion(ctx context.Context, texts []script.Code, trial bool) (script.Script, error) {
	var loaded []script.Script
	var faults []error
	for i, text := range texts {
		s, err := c.loadPiece(ctx, &c.pieces[i], text, trial)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		loaded = append(loaded, s)
	}
	if err := config.Join(faults...); err != nil {
		for _, s := range loaded {
			_ = s.Close() // it has not run
		}
		return nil, err
	}
	return c.combine(ctx, loaded)
}

func (c *code) loadPiece(ctx context.Context, p *piece, text script.Code, trial bool) (script.Script, error) {
	options := p.options
	if trial {
		options.Log, options.Stats, options.Pool = slog.New(slog.DiscardHandler), nil, nil
	}
	text.Func = p.function
	language := find(c.languages, languageName, p.language)
	if p.isolated {
		language = c.isolation.Language(language)
	}
	loaded, err := language.Load(ctx, text, options)
	if err != nil {
		err = p.locate(err, text)
		if fault, ok := err.(*config.Error); ok && p.commentHint != "" {
			fault.Hint = p.commentHint
		}
		return nil, p.from.At(err, cmp.Or(p.commentHint, event.HintOf(err)))
	}
	if language.Check != nil && !trial {
		for _, mistake := range language.Check(text, options) {
			c.log.Warn("the script may fail", "error", mistake, "hint", mistake.Hint)
			c.mistakes = append(c.mistakes, p.locate(mistake, text))
		}
	}
	return loaded, nil
}

// locate adds to an error of the code its line: that of the configuration, if the code stands
// there and not in a file, or one that it requires.
func (p *piece) locate(err error, code script.Code) error {
	err = ScriptError(err, code)
	if fault, ok := err.(*config.Error); ok && p.origin.Inline() && fault.File == p.origin.String() {
		return p.from.Locate(fault, string(code.Text))
	}
	return err
}

// combine puts the script and the computed columns together.
func (c *code) combine(ctx context.Context, loaded []script.Script) (script.Script, error) {
	var first script.Script
	if c.hasScript {
		first, loaded = loaded[0], loaded[1:]
	} else {
		var err error
		if first, err = passthrough.Language().Load(ctx, script.Code{}, c.scriptOptions(len(c.columns) > 0)); err != nil {
			return nil, err
		}
	}
	if len(c.columns) == 0 {
		return first, nil
	}
	columns := slices.Clone(c.columns)
	for i, index := range c.columnIndex {
		columns[index].Code = loaded[i]
	}
	return computed.New(c.pipeline, first, columns, c.sinks, c.now), nil
}

// hint is for a text that was taken for a path and looks like code.
func (p *piece) hint(err error) string {
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(p.origin.Path(), " (=") {
		return "code on one line must define a function: function main(row) return row.a end"
	}
	return ""
}
