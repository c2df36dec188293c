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

// A scriptSet is the scripts of a pipeline: its own script and those of its computed columns.
type scriptSet struct {
	pipeline    string
	languages   []script.Language
	isolation   *isolate.Launcher
	hasScript   bool
	sinks       []script.Sink
	sources     []scriptSource    // that of the pipeline's script comes first
	columns     []computed.Column // without their scripts
	columnIndex []int             // for each source of a column, its index in columns
	now         func() time.Time  // of make://timestamp
	replaced    func()            // see reload.Config
	log         *slog.Logger
	mistakes    []error // in the first version, which loads nevertheless
}

// A scriptSource is where the code of one script comes from, and how it is loaded.
type scriptSource struct {
	origin      loader.Origin
	language    string
	function    string
	isolated    bool // in processes of its own
	options     script.Options
	location    location
	commentHint string // the hint if YAML has cut the code at a comment
}

// A location is a place in the configuration that has code or the path of a file with code.
type location interface {
	// At adds the place to an error that has none.
	At(err error, hint string) error
	// Locate turns a place in inline code into the place in the configuration.
	Locate(fault *config.Error, code string) *config.Error
}

// pluginLanguage is the language of code in a file that ends in .so.
const pluginLanguage = "plugin"

// locateScripts returns the scripts of a pipeline for these sinks. It finds their locations and does
// not read them. inline is the name of code in the configuration.
func (a *Assembly) locateScripts(p *Pipeline, sinks []script.Sink, inline string, log *slog.Logger) (*scriptSet, error) {
	set := &scriptSet{pipeline: p.Config.Name, languages: a.opts.Kinds.Languages, isolation: a.opts.Isolation, sinks: sinks, log: log, now: time.Now}
	if s := p.Config.Script; s != nil {
		set.hasScript = true
		options := set.scriptOptions(len(p.Config.Computed) > 0)
		options.Limits, options.Log, options.Modules = script.Limits(s.Limits), log, a.opts.Kinds.Modules
		options.Stats, options.Pool = a.shared.stats, a.poolOf(p)
		switch {
		case p.Config.State != nil:
			options.Extension = lua.ForState(p.Config.Reads...)
		case len(p.Config.Reads) > 0:
			options.Extension = lua.ForReads(p.Config.Reads...)
		}
		isolated := s.Isolate == config.IsolateProcess
		if isolated && set.isolation == nil {
			return nil, s.At(errors.New("isolate: this program does not start script workers"), "call isolate.Init first in main, and set engine.Options.Isolation to its result")
		}
		err := set.add(scriptSource{language: s.Language, function: s.Func, isolated: isolated, options: options, location: s, commentHint: s.CommentHint(s.Text)}, s.Text, a.Config.Base, inline)
		if err != nil {
			return nil, err
		}
	}
	for _, column := range p.Config.Computed {
		if err := a.locateColumn(set, column, log); err != nil {
			return nil, err
		}
	}
	return set, nil
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

// scriptOptions returns the outputs that the script is loaded with: those of the sinks, or a single
// one if computed columns run between the script and the sinks.
func (set *scriptSet) scriptOptions(computed bool) script.Options {
	if !computed {
		return script.Options{Sinks: set.sinks}
	}
	sinks := slices.Clone(set.sinks)
	for i := range sinks {
		sinks[i].Columns = nil
	}
	return script.Options{Sinks: sinks, SingleOutput: true}
}

func (set *scriptSet) add(source scriptSource, text, base, name string) (err error) {
	if source.origin, err = loader.Locate(text, base, name); err != nil {
		return source.location.At(err, "")
	}
	set.sources = append(set.sources, source)
	return nil
}

func (a *Assembly) locateColumn(set *scriptSet, of config.Computed, log *slog.Logger) error {
	typ, _ := event.ParseType(of.Type) // the configuration has checked it
	column := computed.Column{Name: of.Name, Type: typ}
	if computed.IsBuilt(of.Func) {
		column.Builtin = of.Func
	}
	if err := column.Check(); err != nil {
		return of.At(err, "")
	}
	set.columns = append(set.columns, column)
	if column.Builtin != "" {
		return nil
	}
	set.columnIndex = append(set.columnIndex, len(set.columns)-1)
	source := scriptSource{language: set.languages[0].Name, function: of.FuncName, location: of, commentHint: of.CommentHint(of.Func), options: script.Options{
		Sinks: []script.Sink{{}}, ReturnsValue: true, Log: log, Modules: a.opts.Kinds.Modules,
		Stats: a.shared.stats, Pool: a.shared.pool,
	}}
	if strings.HasSuffix(of.Func, ".so") {
		source.language = pluginLanguage
		if !slices.Contains(a.opts.Kinds.names().Languages, pluginLanguage) {
			return of.At(errors.New("this build cannot load Go plugins"), "use a build with cgo for Linux, macOS or FreeBSD")
		}
	}
	return set.add(source, of.Func, a.Config.Base, "column "+of.Name)
}

// load loads the scripts. The script that it returns replaces itself when the code
// changes, unless all of it is built in.
func (set *scriptSet) load(ctx context.Context, l *loader.Loader, log *slog.Logger) (script.Script, error) {
	if len(set.sources) == 0 {
		return set.loadVersion(ctx, nil, false)
	}
	settings := reload.Config{Loader: l, Load: set.loadVersion, Sinks: len(set.sinks), Log: log, Replaced: set.replaced}
	for _, source := range set.sources {
		settings.Origins = append(settings.Origins, source.origin)
	}
	loaded, err := reload.New(ctx, settings)
	if unread, ok := errors.AsType[*reload.ReadError](err); ok {
		source := set.sources[unread.Origin]
		return nil, source.location.At(unread.Err, cmp.Or(event.HintOf(err), source.commentHint, source.pathHint(err)))
	}
	if err != nil {
		return nil, err
	}
	return loaded, nil
}

// loadVersion loads one version of the scripts: texts are those of the sources. It returns
// the faults of all of them. A trial leaves no trace in the log or the statistics.
func (set *scriptSet) loadVersion(ctx context.Context, texts []script.Code, trial bool) (script.Script, error) {
	var loaded []script.Script
	var faults []error
	for i, text := range texts {
		s, err := set.loadOne(ctx, &set.sources[i], text, trial)
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
	return set.combine(ctx, loaded)
}

func (set *scriptSet) loadOne(ctx context.Context, source *scriptSource, text script.Code, trial bool) (script.Script, error) {
	options := source.options
	if trial {
		options.Log, options.Stats, options.Pool = slog.New(slog.DiscardHandler), nil, nil
	}
	text.Func = source.function
	language := find(set.languages, languageName, source.language)
	if source.isolated {
		language = set.isolation.Language(language)
	}
	loaded, err := language.Load(ctx, text, options)
	if err != nil {
		err = source.locate(err, text)
		if fault, ok := err.(*config.Error); ok && source.commentHint != "" {
			fault.Hint = source.commentHint
		}
		return nil, source.location.At(err, cmp.Or(source.commentHint, event.HintOf(err)))
	}
	if language.Check != nil && !trial {
		for _, mistake := range language.Check(text, options) {
			set.log.Warn("the script may fail", "error", mistake, "hint", mistake.Hint)
			set.mistakes = append(set.mistakes, source.locate(mistake, text))
		}
	}
	return loaded, nil
}

// locate adds the line to an error of the code. For inline code that is the line of the
// configuration; for a file, or a module that the code requires, the line of that file.
func (source *scriptSource) locate(err error, code script.Code) error {
	err = ScriptError(err, code)
	if fault, ok := err.(*config.Error); ok && source.origin.Inline() && fault.File == source.origin.String() {
		return source.location.Locate(fault, string(code.Text))
	}
	return err
}

// combine puts the script and the computed columns together.
func (set *scriptSet) combine(ctx context.Context, loaded []script.Script) (script.Script, error) {
	var first script.Script
	if set.hasScript {
		first, loaded = loaded[0], loaded[1:]
	} else {
		var err error
		if first, err = passthrough.Language().Load(ctx, script.Code{}, set.scriptOptions(len(set.columns) > 0)); err != nil {
			return nil, err
		}
	}
	if len(set.columns) == 0 {
		return first, nil
	}
	columns := slices.Clone(set.columns)
	for i, index := range set.columnIndex {
		columns[index].Code = loaded[i]
	}
	return computed.New(set.pipeline, first, columns, set.sinks, set.now), nil
}

// pathHint returns the hint for a path that does not exist and looks like code.
func (source *scriptSource) pathHint(err error) string {
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(source.origin.Path(), " (=") {
		return "code on one line must define a function: function main(row) return row.a end"
	}
	return ""
}
