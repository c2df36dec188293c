package engine

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// Kinds are what configurations can name. The names of sources, of sinks and of
// languages must differ.
type Kinds struct {
	Sources   []source.Kind
	Sinks     []sink.Kind
	Languages []script.Language // a script that names none is in the first

	// Modules are what scripts can require besides the standard modules: functions in
	// Go.
	Modules []script.Module

	// Metrics are shown at /metrics besides those of the engine.
	Metrics []prometheus.Collector
}

func sourceName(k source.Kind) string       { return k.Name }
func sinkName(k sink.Kind) string           { return k.Name }
func languageName(l script.Language) string { return l.Name }

func (k *Kinds) names() config.Known {
	return config.Known{
		Sources:   namesOf(k.Sources, sourceName),
		Sinks:     namesOf(k.Sinks, sinkName),
		Languages: namesOf(k.Languages, languageName),
		Types:     namesOf(computed.Types(), event.Type.String),

		ColumnTypes: event.TableTypeNames(),
	}
}

func namesOf[K any](kinds []K, nameOf func(K) string) (names []string) {
	for _, k := range kinds {
		names = append(names, nameOf(k))
	}
	return names
}

// Load reads the configuration at a location: a file, or an address such as
// https://example.com/pipeline.yaml or s3://bucket/key. Hosts must be in opts.Allow.
//
// It returns the faults of the file as config.Errors, together with what could be
// read. Open and Assemble return these faults again, with those that they find, so a
// caller that wants all faults at once may ignore the error when the Config is not nil.
func Load(ctx context.Context, location string, opts Options) (*config.Config, error) {
	opts = opts.withDefaults()
	if !loader.IsAddress(location) {
		return config.Load(location, opts.Kinds.names(), opts.Lookup)
	}
	origin, err := loader.Locate(location, "", "")
	if err != nil {
		return nil, err
	}
	l, err := loader.New(loader.Config{Allow: opts.Allow, Lookup: opts.Lookup})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	text, err := l.Load(ctx, origin, "")
	if refused, ok := errors.AsType[*loader.Refused](err); ok {
		return nil, event.WithHint(err, "if you trust this host, allow it: --allow "+refused.Host)
	}
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(origin.String(), string(text.Bytes), opts.Kinds.names(), opts.Lookup)
	if c != nil {
		c.Base = origin.Base()
	}
	return c, err
}

// ScriptError turns a *script.Error in err's chain into a *config.Error with the line of
// code that it is about, unless that is of a file that the code requires. It returns other errors as they are.
func ScriptError(err error, code script.Code) error {
	fault, ok := errors.AsType[*script.Error](err)
	if !ok || fault.Line == 0 {
		return err
	}
	line := ""
	if fault.Script == code.Name {
		line = config.LineOf(string(code.Text), fault.Line)
	}
	return &config.Error{
		File: fault.Script, Line: fault.Line,
		Column:  cmp.Or(fault.Column, 1+len(line)-len(strings.TrimLeft(line, " \t"))),
		Message: fault.Message, Hint: fault.Hint, Source: line,
	}
}
