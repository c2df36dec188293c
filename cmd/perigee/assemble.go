package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/source"
)

// A part is one pipeline of a configuration, made and not connected.
type part struct {
	config config.Pipeline
	limits source.Limits
	source source.Source
	sinks  []outlet // in the order of the configuration
	script script.Script
	code   string // where that of the script comes from
}

// A plan is a configuration with the parts of every pipeline in it.
type plan struct {
	*config.Config
	base   string // where paths of code start: a folder, or an address that ends in a slash
	parts  []part
	store  *eventStore
	loader *loader.Loader
	stats  *script.Stats // what all scripts measure
	pool   *pool.Pool    // their VMs,
	pools  []*pool.Pool  // but for those of scripts that have a pool of their own
}

// assemble makes the parts of every pipeline in the file. It connects to nothing
// but hosts that code comes from, and reports every fault that can be found that
// way. Whoever has the plan closes it.
func assemble(ctx context.Context, file configFlags, c *console, log *slog.Logger) (*plan, error) {
	conf, base, err := file.load(ctx, c)
	if conf == nil {
		return nil, err
	}
	p := &plan{Config: conf, base: base, store: newEventStore(conf.Data), stats: &script.Stats{}, pool: pool.New(pool.Settings{})}
	faults := append(p.makeLoader(file.Allow, c), err)
	if p.loader != nil {
		faults = append(faults, p.make(ctx, log)...)
	}
	if err := config.Join(faults...); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// makeLoader makes what reads the code. also are further hosts that may be asked.
func (pl *plan) makeLoader(also []string, c *console) (faults []error) {
	if _, err := loader.ParseAllow(pl.Allow.Hosts); err != nil {
		return []error{pl.Allow.At(err, "")}
	}
	made, err := loader.New(loader.Config{
		Allow: append(slices.Clone(pl.Allow.Hosts), also...), Lookup: c.lookup,
		S3: loader.S3{Endpoint: pl.S3.Endpoint, Region: pl.S3.Region, AccessKey: pl.S3.AccessKey, SecretKey: pl.S3.SecretKey},
	})
	if err != nil {
		return []error{pl.S3.At(err, "")}
	}
	pl.loader = made
	return nil
}

func (pl *plan) make(ctx context.Context, log *slog.Logger) (faults []error) {
	for _, p := range pl.Pipelines {
		one := part{config: p, limits: source.Limits{
			Events: orDefault(p.Batch.Events, batchEvents),
			Bytes:  orDefault(p.Batch.Bytes, batchBytes),
		}}
		faults = append(faults, one.makeSinks(pl, log), one.makeSource(pl, log), one.loadScript(ctx, pl, log))
		pl.parts = append(pl.parts, one)
	}
	return faults
}

// makeSource comes after makeSinks, whose guarantees it tells the source.
func (p *part) makeSource(pl *plan, log *slog.Logger) error {
	chosen := p.config.Source
	if chosen.Kind == "" {
		return nil
	}
	env := source.Env{
		Pipeline: p.config.Name, Folder: pl.Folder, Data: pl.Data,
		Remembered: p.remembers(),
		Log:        log.With("pipeline", p.config.Name), Limits: p.limits,
	}
	made, err := find(sources(), sourceName, chosen.Kind).New(env, chosen.Decode)
	if err != nil {
		return chosen.At(err, event.HintOf(err))
	}
	p.source = made
	return nil
}

// loadScript comes after makeSinks: the sinks say which columns the script fills.
func (p *part) loadScript(ctx context.Context, pl *plan, log *slog.Logger) error {
	if s := p.config.Script; s != nil && (s.Language == "" || strings.TrimSpace(s.Text) == "") {
		return nil // the configuration says so
	}
	sinks := p.scriptSinks()
	if len(sinks) == 0 { // they have faults; those of the script are wanted too
		sinks = []script.Sink{{}}
	}
	log = log.With("pipeline", p.config.Name)
	g, err := newProgram(pl, p.config, sinks, log)
	if err != nil {
		return err
	}
	if p.config.Script != nil {
		p.code = g.pieces[0].origin.String()
	}
	loaded, err := g.start(ctx, pl.loader, log)
	if err != nil {
		return err
	}
	p.script = loaded
	return nil
}

// close closes the parts, and what they share.
func (pl *plan) close() error {
	var errs []error
	if pl.loader != nil {
		pl.loader.Close()
	}
	for _, p := range pl.parts {
		for _, c := range []io.Closer{p.script, p.source} {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
		errs = append(errs, p.closeSinks())
	}
	return errors.Join(append(errs, pl.store.close())...)
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
