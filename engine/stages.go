package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
)

// Stages are what a pipeline does with events between its source and its sinks: its script,
// its computed columns, and the conversion to the columns of each sink. They run without a
// source, a server or a data folder, and never reload their code.
type Stages struct {
	script.Script // one output for each sink

	Config config.Pipeline
	Sinks  []StageSink
	// Code is that of the script; its Text is nil if the pipeline has none. Language is that
	// of the script.
	Code     script.Code
	Language string
	// ScriptOptions are what the script was loaded with.
	ScriptOptions script.Options
	// Codes are the code of the script and of the computed columns.
	Codes []script.Code
	// MaxEvent is the size beyond which an event becomes a dead letter, see script.MaxEvent.
	MaxEvent int
	// State is the state of the script, which begins empty and ends with the Stages; nil if the
	// pipeline has none. The states of other pipelines that it reads are empty.
	State *state.Scratch

	reads     []*state.Scratch // the states of other pipelines, which are empty
	loadValue func(ctx context.Context, code script.Code) (script.Script, error)
	pools     []*pool.Pool // of the VMs
}

// Memory returns the bytes of all VMs.
func (s *Stages) Memory() (bytes int) {
	for _, p := range s.pools {
		bytes += p.Stats().Memory
	}
	return bytes
}

// LoadValue loads other code with the language, the limits, the modules and the state of the script,
// and script.Options.ReturnsValue. The pipeline must have a script. The caller closes the result
// before the Stages.
func (s *Stages) LoadValue(ctx context.Context, code script.Code) (script.Script, error) {
	loaded, err := s.loadValue(ctx, code)
	if err != nil {
		return nil, err
	}
	if s.State != nil {
		loaded = s.State.Wrap(loaded)
	}
	return state.WithReads(loaded, s.reads), nil
}

// Close implements script.Script.
func (s *Stages) Close() error {
	err := s.Script.Close()
	if s.State != nil {
		err = errors.Join(err, s.State.Close())
	}
	for _, r := range s.reads {
		err = errors.Join(err, r.Close())
	}
	return err
}

// A StageSink is what a sink stores.
type StageSink struct {
	Config config.Sink
	// Columns are those that the sink stores; nil if it stores documents.
	Columns []event.Column
	// Documents says that a row also keeps the fields that have no column.
	Documents bool
	// Rest is the column that keeps these fields as one JSON object; "" if each has its own.
	Rest string
}

// Compared describes the sinks to package compare.
func (s *Stages) Compared() (sinks []compare.Sink) {
	for _, one := range s.Sinks {
		sinks = append(sinks, compare.Sink{Name: one.Config.Name, Columns: one.Columns, Documents: one.Documents})
	}
	return sinks
}

// StageOptions are how Stages differ from those of a running engine.
type StageOptions struct {
	Log   *slog.Logger  // of the code; nil discards it
	Trial *script.Trial // may be nil
	// Code replaces the script of the pipeline, such as by another version of it.
	Code *script.Code
	// Modules are added to those of the options.
	Modules []script.Module
	// Documents keeps the documents of all rows, also for sinks that read only columns.
	Documents bool
}

// A ColumnService is a Service that knows the columns of sinks whose kind does not tell them.
type ColumnService interface {
	Service
	// DescribeColumns fills in what a sink stores, unless the service does not know it.
	DescribeColumns(c *config.Config, s *StageSink)
}

// FindPipeline returns a pipeline by its name, or the only one for "". An error lists the
// names.
func FindPipeline(c *config.Config, name string) (config.Pipeline, error) {
	if name == "" && len(c.Pipelines) == 1 {
		return c.Pipelines[0], nil
	}
	var names []string
	for _, p := range c.Pipelines {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if name == "" {
		return config.Pipeline{}, event.WithHint(fmt.Errorf("%s has %d pipelines", c.File, len(names)), "name one: "+strings.Join(names, ", "))
	}
	return config.Pipeline{}, event.WithHint(fmt.Errorf("%s has no pipeline %q", c.File, name), config.SuggestName(name, names))
}

// LoadStages loads the stages of one pipeline. Scripts in Lua run in this process, even if
// the configuration isolates them: sandbox and limits are the same. A pipeline with a state gets
// an empty one of its own. Faults of the configuration are config.Errors. The caller closes the Stages.
func LoadStages(ctx context.Context, c *config.Config, pipeline string, opts Options, with StageOptions) (*Stages, error) {
	opts = opts.withDefaults()
	opts.Kinds.Modules = slices.Concat(opts.Kinds.Modules, with.Modules)
	resolved, err := c.Resolve(opts.Kinds.names())
	if resolved == nil {
		return nil, err
	}
	a := &Assembly{Config: resolved, opts: opts, shared: newShared()}
	if err := config.Join(err, a.createLoader()); err != nil {
		return nil, err
	}
	defer a.loader.Close()
	chosen, err := FindPipeline(resolved, pipeline)
	if err != nil {
		return nil, err
	}
	if err := a.readSchemas(ctx); err != nil {
		return nil, err
	}
	return a.loadStages(ctx, chosen, with)
}

func (a *Assembly) loadStages(ctx context.Context, chosen config.Pipeline, with StageOptions) (*Stages, error) {
	log := with.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if s := chosen.Script; s != nil && s.Language != pluginLanguage {
		here := *s
		here.Isolate = ""
		chosen.Script = &here
	}
	p := &Pipeline{Config: chosen}
	err := a.createSinks(p, log)
	if err == nil {
		err = p.checkState()
	}
	sinks := a.stageSinks(p)
	for _, s := range p.Sinks { // only their traits are needed
		err = config.Join(err, s.Sink.Close())
	}
	if err != nil {
		return nil, err
	}
	forScript := p.scriptSinks()
	for i, s := range sinks {
		forScript[i].Columns = s.Columns
		forScript[i].ColumnsOnly = forScript[i].ColumnsOnly && !with.Documents
	}
	set, err := a.locateScripts(p, forScript, scriptName(p), log)
	if err != nil {
		return nil, err
	}
	set.now = with.Trial.Clock()
	return a.loadScripts(ctx, p, set, sinks, with)
}

// stageSinks describes what the sinks of a pipeline store.
func (a *Assembly) stageSinks(p *Pipeline) (sinks []StageSink) {
	for _, s := range p.Sinks {
		one := StageSink{Config: s.Config, Columns: s.Sink.Traits().Columns}
		for _, service := range a.opts.Services {
			if known, ok := service.(ColumnService); ok && one.Columns == nil {
				known.DescribeColumns(a.Config, &one)
			}
		}
		sinks = append(sinks, one)
	}
	return sinks
}

// loadScripts loads the scripts of a pipeline once.
func (a *Assembly) loadScripts(ctx context.Context, p *Pipeline, set *scriptSet, sinks []StageSink, with StageOptions) (*Stages, error) {
	stages := &Stages{Config: p.Config, Sinks: sinks, MaxEvent: cmp.Or(p.Config.MaxEvent, DefaultMaxEvent), pools: []*pool.Pool{a.shared.pool}}
	if p.pool != nil {
		stages.pools = append(stages.pools, p.pool)
	}
	if with.Code != nil && !set.hasScript {
		return nil, errors.New("pipeline " + p.Config.Name + " has no script")
	}
	var texts []script.Code
	for i := range set.sources {
		source := &set.sources[i]
		source.options.Trial, source.options.Stats = with.Trial, nil
		isScript := i == 0 && set.hasScript
		text, err := a.textOf(ctx, source, isScript, with)
		if err != nil {
			return nil, err
		}
		if isScript {
			stages.Language, stages.Code, stages.loadValue = source.language, text, set.valueLoader(*source)
			stages.ScriptOptions = source.options
		}
		texts = append(texts, text)
	}
	loaded, err := set.loadVersion(ctx, texts, false)
	if err != nil {
		return nil, err
	}
	stages.Script, stages.Codes = loaded, texts
	if p.Config.State != nil {
		stages.State = state.NewScratch(with.Trial.Clock(), eventTimeOf(p.Config.State))
		stages.Script = stages.State.Wrap(loaded)
	}
	for range p.Config.Reads {
		stages.reads = append(stages.reads, state.NewScratch(with.Trial.Clock(), nil))
	}
	stages.Script = state.WithReads(stages.Script, stages.reads)
	return stages, nil
}

// textOf returns the code of a source. Code in the options replaces that of the script.
func (a *Assembly) textOf(ctx context.Context, source *scriptSource, isScript bool, with StageOptions) (script.Code, error) {
	if isScript && with.Code != nil {
		return *with.Code, nil
	}
	text, _, err := a.loader.Code(ctx, source.origin, "")
	return text, source.location.At(err, cmp.Or(event.HintOf(err), source.commentHint, source.pathHint(err)))
}

// valueLoader returns Stages.loadValue for the source of the script.
func (set *scriptSet) valueLoader(source scriptSource) func(ctx context.Context, code script.Code) (script.Script, error) {
	options := source.options
	options.Sinks, options.ReturnsValue, options.SingleOutput = []script.Sink{{}}, true, false
	return func(ctx context.Context, code script.Code) (script.Script, error) {
		loaded, err := find(set.languages, languageName, source.language).Load(ctx, code, options)
		return loaded, source.location.At(source.locate(err, code), event.HintOf(err))
	}
}
