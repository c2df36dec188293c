package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/shadow"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/state/archive"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/reload"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/changelog"
	"github.com/perigeedb/perigee/source"
)

// Limits of a batch and of an event for pipelines whose configuration sets none.
const (
	DefaultBatchEvents = 1000
	DefaultBatchBytes  = 1 << 20
	DefaultMaxEvent    = 1 << 20
)

// An Assembly holds the sources, scripts and sinks of a configuration. They are
// connected to nothing and no event was read. An Assembly is not safe for concurrent
// use.
type Assembly struct {
	Config    *config.Config
	Pipelines []*Pipeline // in the order of the configuration

	functions []Function

	opts      Options
	loader    *loader.Loader
	shared    *shared
	changelog *changelog.Store // while a command changes states; else nil
	// changelogSinks are the sinks of that changelog, by pipeline: units belong to one.
	changelogSinks map[string]*changelog.Sink
}

// A Pipeline is one pipeline of an Assembly.
type Pipeline struct {
	Config config.Pipeline
	Source source.Source
	Script script.Script
	Sinks  []Sink // in the order of the configuration

	// Shadow is a new version that runs beside the script; nil for none. ShadowFault is why it does not
	// load, which does not keep the pipeline from running.
	Shadow      *shadow.Shadow
	ShadowFault error

	// ScriptOrigin says where the code of the script comes from; it is empty when
	// events pass through unchanged.
	ScriptOrigin string

	// Mistakes are in code that loads, and that an event may run: an unknown sink, a
	// variable that nothing sets. Open logs them as warnings.
	Mistakes []error

	limits    source.Limits
	loader    *loader.Loader
	pool      *pool.Pool    // of the script alone; nil when it uses the shared one
	beside    *pool.Pool    // of the shadow; nil without one
	tap       *tap.Hub      // in a running engine
	state     *state.Config // in a running engine; nil without a state
	archive   archive.Place // of the state; nil for none
	changelog sink.Sink     // the home of the state in a running engine; nil if a sink is it
	closed    bool
}

// A Sink is one sink of a Pipeline.
type Sink struct {
	Config    config.Sink
	Sink      sink.Sink
	Guarantee sink.Guarantee
}

// shared is what the scripts of an engine have in common.
type shared struct {
	stats *script.Stats
	pool  *pool.Pool
}

func newShared() *shared {
	return &shared{stats: &script.Stats{}, pool: pool.New(pool.Settings{})}
}

// Assemble creates the sources, scripts and sinks that c names. It connects to no
// server except the hosts that code is loaded from, writes nothing, and returns every
// fault that can be found that way, as config.Errors where the faults have places. It
// configures the services. The caller closes the Assembly.
func Assemble(ctx context.Context, c *config.Config, opts Options) (*Assembly, error) {
	a, err := assemble(ctx, c, opts.withDefaults(), newShared())
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, p := range a.Pipelines {
		faults = append(faults, p.ShadowFault)
	}
	if err := cmp.Or(config.Join(faults...), opts.configureServices(a.Config)); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func assemble(ctx context.Context, c *config.Config, opts Options, s *shared) (*Assembly, error) {
	c, err := c.Resolve(opts.Kinds.names())
	if c == nil {
		return nil, err
	}
	a := &Assembly{Config: c, opts: opts, shared: s, changelogSinks: map[string]*changelog.Sink{}}
	faults := []error{err, checkData(c), a.createLoader()}
	if a.loader != nil {
		faults = append(faults, a.readSchemas(ctx))
		for _, p := range c.Pipelines {
			faults = append(faults, a.addPipeline(ctx, p)...)
		}
		for _, f := range c.Functions {
			faults = append(faults, a.addFunction(ctx, f))
		}
		for _, t := range c.Tables {
			for _, column := range t.Computed {
				faults = append(faults, a.addTableColumn(ctx, t.Name, column))
			}
		}
	}
	if err := config.Join(faults...); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// HTTP returns the address that the engine listens on, or "". It is required if the
// configuration names it, and not only the options.
func (a *Assembly) HTTP() (address string, required bool) {
	switch a.Config.HTTP {
	case "":
		return a.opts.HTTP, false
	case config.HTTPOff:
		return "", false
	}
	return a.Config.HTTP, true
}

func (a *Assembly) createLoader() error {
	c := a.Config
	if _, err := loader.ParseAllow(c.Allow.Hosts); err != nil {
		return c.Allow.At(err, "")
	}
	l, err := loader.New(loader.Config{
		Allow: append(slices.Clone(c.Allow.Hosts), a.opts.Allow...), Lookup: a.opts.Lookup,
		S3: a.s3Settings(),
	})
	if err != nil {
		return c.S3.At(err, "")
	}
	a.loader = l
	return nil
}

func (a *Assembly) s3Settings() s3client.Settings {
	s := a.Config.S3
	return s3client.Settings{Endpoint: s.Endpoint, Region: s.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey}
}

// readSchemas reads the schemas of tables that are texts of their own.
func (a *Assembly) readSchemas(ctx context.Context) error {
	var faults []error
	a.Config.Tables = slices.Clone(a.Config.Tables)
	for i := range a.Config.Tables {
		t := &a.Config.Tables[i]
		if t.Schema == "" {
			continue
		}
		origin, err := loader.Locate(t.Schema, a.Config.Base, "schema of table "+t.Name)
		if err != nil {
			faults = append(faults, t.AtSchema(err, ""))
			continue
		}
		text, err := a.loader.Load(ctx, origin, "")
		if err != nil {
			faults = append(faults, t.AtSchema(err, event.HintOf(err)))
			continue
		}
		faults = append(faults, t.ReadSchema(origin.String(), string(text.Bytes), a.opts.Kinds.names()))
	}
	return config.Join(faults...)
}

// addPipeline assembles one pipeline. The sinks come first: the source is told whether
// they remember positions, and the script which columns they want.
func (a *Assembly) addPipeline(ctx context.Context, c config.Pipeline) (faults []error) {
	p := &Pipeline{Config: c, loader: a.loader, limits: limitsOf(c)}
	a.Pipelines = append(a.Pipelines, p)
	log := a.opts.Log.With("pipeline", c.Name)
	sinks := a.createSinks(p, log)
	if sinks == nil {
		sinks = cmp.Or(p.checkState(), a.createArchive(p))
	}
	return append(faults, sinks, a.createSource(p, log), a.loadScript(ctx, p, log))
}

func limitsOf(c config.Pipeline) source.Limits {
	return source.Limits{Events: cmp.Or(c.Batch.Events, DefaultBatchEvents), Bytes: cmp.Or(c.Batch.Bytes, DefaultBatchBytes)}
}

// NewSource creates the source of one pipeline, see FindPipeline, without its script and sinks. It connects to no
// server. The source is told that no sink remembers positions. The caller closes it.
func NewSource(c *config.Config, name string, opts Options) (source.Source, error) {
	opts = opts.withDefaults()
	c, err := c.Resolve(opts.Kinds.names())
	if err != nil {
		return nil, err
	}
	chosen, err := FindPipeline(c, name)
	if err != nil {
		return nil, err
	}
	a := &Assembly{Config: c, opts: opts}
	p := &Pipeline{Config: chosen, limits: limitsOf(chosen)}
	err = a.createSource(p, opts.Log.With("pipeline", name))
	return p.Source, err
}

func (a *Assembly) createSource(p *Pipeline, log *slog.Logger) error {
	c := p.Config.Source
	if c.Kind == "" {
		return nil // the configuration has reported it
	}
	kind := find(a.opts.Kinds.Sources, sourceName, c.Kind)
	created, err := kind.New(source.Env{
		Pipeline: p.Config.Name, Folder: a.Config.Folder, Data: a.Config.Data,
		Remembered: p.remembers(), Log: log, Limits: p.limits,
	}, c.Decode)
	if err != nil {
		return c.At(err, event.HintOf(err))
	}
	p.Source = created
	return nil
}

// createSinks reports the faults of all sinks.
func (a *Assembly) createSinks(p *Pipeline, log *slog.Logger) error {
	var faults []error
	for _, c := range p.Config.Sinks {
		if c.Kind == "" {
			continue // the configuration has reported it
		}
		env := sink.Env{Pipeline: p.positionsName(c), Folder: a.Config.Folder, Data: a.Config.Data, State: p.Config.State != nil, Log: log}
		if len(p.Config.Sinks) > 1 {
			env.Log = log.With("sink", c.Name)
		}
		kind := find(a.opts.Kinds.Sinks, sinkName, c.Kind)
		created, err := kind.New(env, c.Decode)
		if err != nil {
			faults = append(faults, c.At(err, event.HintOf(err)))
			continue
		}
		p.Sinks = append(p.Sinks, Sink{Config: c, Sink: created, Guarantee: kind.Guarantee})
	}
	return config.Join(faults...)
}

func (a *Assembly) loadScript(ctx context.Context, p *Pipeline, log *slog.Logger) error {
	if s := p.Config.Script; s != nil && (s.Language == "" || strings.TrimSpace(s.Text) == "") {
		return nil // the configuration has reported it
	}
	set, err := a.locateScripts(p, p.scriptSinks(), scriptName(p), log)
	if err != nil {
		return err
	}
	set.replaced = func() {
		if p.Shadow != nil {
			p.Shadow.LiveReplaced()
		}
	}
	if p.Config.Script != nil {
		p.ScriptOrigin = set.sources[0].origin.String()
	}
	loaded, err := set.load(ctx, a.loader, log)
	if err != nil {
		return err
	}
	p.Script, p.Mistakes = loaded, set.mistakes
	if p.Config.Shadow != nil {
		return a.addShadow(ctx, p, log)
	}
	return nil
}

// scriptName is the name of a script in the configuration.
func scriptName(p *Pipeline) string { return "script of " + p.Config.Name }

// Close closes the sources, scripts and sinks.
func (a *Assembly) Close() error {
	var errs []error
	for _, p := range a.Pipelines {
		errs = append(errs, p.close())
	}
	if a.changelog != nil {
		errs = append(errs, a.changelog.Close())
		a.changelog = nil
	}
	errs = append(errs, closeFunctions(a.functions))
	a.functions = nil
	return errors.Join(errs...)
}

func (a *Assembly) names() (names []string) {
	for _, p := range a.Pipelines {
		names = append(names, p.Config.Name)
	}
	return names
}

// close closes source, script and sinks once.
func (p *Pipeline) close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	p.tap.Close()
	p.loader.Close() // only connections that are idle
	var errs []error
	if p.Shadow != nil {
		errs = append(errs, p.Shadow.Close())
	}
	for _, c := range []io.Closer{p.Script, p.Source} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	for _, s := range p.Sinks {
		errs = append(errs, s.Sink.Close())
	}
	return errors.Join(errs...)
}

// positionsName is the name under which a sink stores the pipeline's positions. Two
// sinks of a pipeline may write to one database, and must not share positions. A sink
// that is named like its kind uses the name that it would have as the only sink, so
// that adding a second sink keeps the positions of the first. A pipeline's name has no
// slash.
func (p *Pipeline) positionsName(s config.Sink) string {
	if s.Name == s.Kind {
		return p.Config.Name
	}
	return p.Config.Name + "/" + s.Name
}

// remembers reports whether a sink of the pipeline remembers positions. One is enough
// for the source: sinks that do not remember are written first, so a sink that
// remembers a position proves that all of them have it.
func (p *Pipeline) remembers() bool {
	return p.Config.State != nil || slices.ContainsFunc(p.Sinks, func(s Sink) bool { return s.Guarantee == sink.ExactlyOnce })
}

func (p *Pipeline) pipelineSinks() (sinks []pipeline.Sink) {
	for _, s := range p.Sinks {
		sinks = append(sinks, pipeline.Sink{Name: s.Config.Name, Sink: s.Sink, Guarantee: s.Guarantee})
	}
	return sinks
}

// scriptSinks describes the sinks to the script.
func (p *Pipeline) scriptSinks() (sinks []script.Sink) {
	for _, s := range p.Sinks {
		traits := s.Sink.Traits()
		sinks = append(sinks, script.Sink{
			Name: s.Config.Name, Routed: s.Config.Routed,
			Columns: traits.Columns, ColumnsOnly: traits.ColumnsOnly,
		})
	}
	if len(sinks) == 0 { // they have faults; report those of the script too
		return []script.Sink{{}}
	}
	return sinks
}

// AdminPipelines describes the pipelines to package admin, which can then show and move
// their positions.
func (a *Assembly) AdminPipelines() (pipelines []admin.Pipeline) {
	for _, p := range a.Pipelines {
		described := p.admin()
		if p.Config.State != nil {
			described.State = a.describeState(p)
			if p.home() < 0 {
				described.Sinks = append(described.Sinks, admin.Sink{Name: changelogName, Sink: a.closedChangelog(p)})
			}
		}
		pipelines = append(pipelines, described)
	}
	return pipelines
}

func (p *Pipeline) admin() admin.Pipeline {
	described := admin.Pipeline{Name: p.Config.Name, Source: p.Source, State: p.state, Tap: p.tap}
	if running, ok := p.Script.(*reload.Script); ok && p.Config.Script != nil {
		described.Code = func() admin.Code {
			code, files := running.Code()
			return admin.Code{Name: code.Name, Text: code.Text, Files: files}
		}
	}
	if p.Shadow != nil {
		described.Shadow = p.Shadow
	}
	for _, s := range p.Sinks {
		described.Sinks = append(described.Sinks, admin.Sink{Name: s.Config.Name, Sink: s.Sink})
	}
	if p.changelog != nil {
		described.Sinks = append(described.Sinks, admin.Sink{Name: changelogName, Sink: p.changelog})
	}
	return described
}

// find returns the kind with a name that the configuration has checked.
func find[K any](kinds []K, nameOf func(K) string, name string) K {
	i := slices.IndexFunc(kinds, func(k K) bool { return nameOf(k) == name })
	if i < 0 {
		panic(fmt.Sprintf("engine: no kind %q", name))
	}
	return kinds[i]
}
