package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/passthrough"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// A part is one pipeline of a configuration, made and not connected.
type part struct {
	config    config.Pipeline
	limits    source.Limits
	source    source.Source
	sink      sink.Sink
	guarantee sink.Guarantee
	script    script.Script
}

// A plan is a configuration with the parts of every pipeline in it.
type plan struct {
	*config.Config
	parts []part
	store *eventStore
}

// assemble makes the parts of every pipeline in the file. It connects to nothing
// and reports every fault that can be found that way. Whoever has the plan
// closes it.
func assemble(ctx context.Context, file string, c *console, log *slog.Logger) (*plan, error) {
	conf, err := config.Load(file, known(), c.lookup)
	if conf == nil {
		return nil, err
	}
	p := &plan{Config: conf, store: newEventStore(conf.Data)}
	if err := config.Join(append(p.make(ctx, log), err)...); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (pl *plan) make(ctx context.Context, log *slog.Logger) (faults []error) {
	for _, p := range pl.Pipelines {
		one := part{config: p, limits: source.Limits{
			Events: orDefault(p.Batch.Events, batchEvents),
			Bytes:  orDefault(p.Batch.Bytes, batchBytes),
		}}
		faults = append(faults, one.makeSink(pl, log), one.makeSource(pl, log), one.loadScript(ctx, log))
		pl.parts = append(pl.parts, one)
	}
	return faults
}

// makeSource comes after makeSink, whose guarantee it tells the source.
func (p *part) makeSource(pl *plan, log *slog.Logger) error {
	chosen := p.config.Source
	if chosen.Kind == "" {
		return nil
	}
	env := source.Env{
		Pipeline: p.config.Name, Folder: pl.Folder, Data: pl.Data,
		Remembered: p.guarantee == sink.ExactlyOnce,
		Log:        log.With("pipeline", p.config.Name), Limits: p.limits,
	}
	made, err := find(sources(), sourceName, chosen.Kind).New(env, chosen.Decode)
	if err != nil {
		return chosen.At(err, hintOf(err))
	}
	p.source = made
	return nil
}

func (p *part) makeSink(pl *plan, log *slog.Logger) error {
	chosen := p.config.Sink
	if chosen.Kind == "" {
		return nil
	}
	kind := find(sinks(pl.store), sinkName, chosen.Kind)
	env := sink.Env{
		Pipeline: p.config.Name, Folder: pl.Folder, Data: pl.Data,
		Log: log.With("pipeline", p.config.Name),
	}
	p.guarantee = kind.Guarantee
	made, err := kind.New(env, chosen.Decode)
	if err != nil {
		return chosen.At(err, hintOf(err))
	}
	p.sink = made
	return nil
}

// loadScript comes after makeSink: the sink says which columns the script fills.
func (p *part) loadScript(ctx context.Context, log *slog.Logger) (err error) {
	options := script.Options{Sinks: [][]event.Column{nil}, Log: log.With("pipeline", p.config.Name)}
	if columnar, ok := p.sink.(sink.Columnar); ok {
		options.Sinks[0] = columnar.Columns()
	}
	chosen := p.config.Script
	switch {
	case chosen == nil:
		p.script, err = passthrough.Language().Load(ctx, script.Code{}, options)
		return err
	case chosen.Path == "":
		return nil
	}
	text, err := os.ReadFile(chosen.Path)
	if err != nil {
		return chosen.At(fmt.Errorf("read script: %w", err), "")
	}
	options.Limits = script.Limits(chosen.Limits)
	code := script.Code{Name: chosen.Path, Text: text, Func: chosen.Func}
	loaded, err := find(languages(), languageName, chosen.Language).Load(ctx, code, options)
	if err != nil {
		return chosen.At(scriptFault(err, text), hintOf(err))
	}
	p.script = loaded
	return nil
}

// close closes the parts, and the event store that sinks share.
func (pl *plan) close() error {
	var errs []error
	for _, p := range pl.parts {
		for _, c := range []io.Closer{p.script, p.source, p.sink} {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
	}
	return errors.Join(append(errs, pl.store.close())...)
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
