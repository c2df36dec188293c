package main

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
)

// An outlet is one sink of a pipeline, made and not connected.
type outlet struct {
	config    config.Sink
	sink      sink.Sink
	guarantee sink.Guarantee
}

// makeSinks makes the sinks of a pipeline and reports the faults of all of them.
func (p *part) makeSinks(pl *plan, log *slog.Logger) error {
	var faults []error
	for _, chosen := range p.config.Sinks {
		if chosen.Kind == "" {
			continue // the configuration says why
		}
		one, err := p.makeSink(pl, chosen, log)
		if err != nil {
			faults = append(faults, chosen.At(err, event.HintOf(err)))
			continue
		}
		p.sinks = append(p.sinks, one)
	}
	return config.Join(faults...)
}

func (p *part) makeSink(pl *plan, chosen config.Sink, log *slog.Logger) (outlet, error) {
	kind := find(sinks(pl.store), sinkName, chosen.Kind)
	env := sink.Env{
		Pipeline: p.ledgerName(chosen), Folder: pl.Folder, Data: pl.Data,
		Log: log.With("pipeline", p.config.Name),
	}
	if len(p.config.Sinks) > 1 {
		env.Log = env.Log.With("sink", chosen.Name)
	}
	made, err := kind.New(env, chosen.Decode)
	return outlet{config: chosen, sink: made, guarantee: kind.Guarantee}, err
}

// ledgerName is what a sink keeps its ranges under. Two sinks of a pipeline may write
// to one database, and must not take each other's ranges for theirs. One that is called
// like its kind has what it had as the only one. A pipeline's name has no slash.
func (p *part) ledgerName(s config.Sink) string {
	if s.Name == s.Kind {
		return p.config.Name
	}
	return p.config.Name + "/" + s.Name
}

// remembers tells whether a sink of the pipeline remembers ranges. One is enough for a
// source to rely on: those that forget are written first, so that every one that
// remembers has whatever was acknowledged, and only their ranges count.
func (p *part) remembers() bool {
	return slices.ContainsFunc(p.sinks, func(o outlet) bool { return o.guarantee == sink.ExactlyOnce })
}

// sinkNames are those that the configuration gives them.
func (p *part) sinkNames() (names []string) {
	for _, o := range p.sinks {
		names = append(names, o.config.Name)
	}
	return names
}

// pipelineSinks are the sinks as the pipeline knows them.
func (p *part) pipelineSinks() (all []pipeline.Sink) {
	for _, o := range p.sinks {
		all = append(all, pipeline.Sink{Name: o.config.Name, Sink: o.sink, Guarantee: o.guarantee})
	}
	return all
}

// scriptSinks are the sinks as the script knows them.
func (p *part) scriptSinks() (all []script.Sink) {
	for _, o := range p.sinks {
		traits := o.sink.Traits()
		all = append(all, script.Sink{
			Name: o.config.Name, Routed: o.config.Routed, Columns: traits.Columns, Bare: traits.ColumnsOnly,
		})
	}
	return all
}

func (p *part) closeSinks() error {
	var errs []error
	for _, o := range p.sinks {
		errs = append(errs, o.sink.Close())
	}
	return errors.Join(errs...)
}
