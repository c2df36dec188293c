package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/loader"
	"github.com/perigeedb/perigee/script/passthrough"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/reload"
)

// A program is all the code of a pipeline: that of its script, if it has one,
// and that of its computed columns.
type program struct {
	pipeline config.Pipeline
	sinks    []script.Sink
	pieces   []piece
	columns  []computed.Column // without their code
	coded    []int             // the columns that pieces are for
}

// A piece is one text of code and how it becomes a script.
type piece struct {
	origin   loader.Origin
	language string
	function string
	options  script.Options
	at       func(err error, hint string) error // gives an error its place in the configuration
}

// newProgram finds out where the code is, and reads none of it.
func newProgram(pl *plan, p config.Pipeline, sinks []script.Sink, log *slog.Logger) (*program, error) {
	g := &program{pipeline: p, sinks: sinks}
	if chosen := p.Script; chosen != nil {
		options := g.delivery()
		options.Limits, options.Log = script.Limits(chosen.Limits), log
		options.Stats, options.Pool = pl.stats, pl.poolOf(chosen)
		one := piece{language: chosen.Language, function: chosen.Func, options: options, at: chosen.At}
		if err := g.add(pl, one, chosen.Text, "script of "+p.Name); err != nil {
			return nil, err
		}
	}
	for _, c := range p.Computed {
		if err := g.addColumn(pl, c, log); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// poolOf returns the pool for the VMs of a script, all its versions: that which others
// have, too, unless the script says something about its own.
func (pl *plan) poolOf(s *config.Script) *pool.Pool {
	if s.Pool == (config.Pool{}) {
		return pl.pool
	}
	own := pool.New(pool.Settings(s.Pool))
	pl.pools = append(pl.pools, own)
	return own
}

// delivery says what the script is loaded for: columns come between it and the sinks.
func (g *program) delivery() script.Options {
	if len(g.pipeline.Computed) == 0 {
		return script.Options{Sinks: g.sinks}
	}
	bare := slices.Clone(g.sinks)
	for i := range bare {
		bare[i].Columns = nil
	}
	return script.Options{Sinks: bare, Together: true}
}

func (g *program) add(pl *plan, one piece, text, name string) (err error) {
	if one.origin, err = loader.Locate(text, pl.base, name); err != nil {
		return one.at(err, "")
	}
	g.pieces = append(g.pieces, one)
	return nil
}

func (g *program) addColumn(pl *plan, c config.Computed, log *slog.Logger) error {
	typ, _ := event.ParseType(c.Type)
	column := computed.Column{Name: c.Name, Type: typ}
	if computed.IsBuilt(c.Func) {
		column.Built = c.Func
	}
	if err := column.Check(); err != nil {
		return c.At(err, "")
	}
	g.columns = append(g.columns, column)
	if column.Built != "" {
		return nil
	}
	g.coded = append(g.coded, len(g.columns)-1)
	options := script.Options{Sinks: []script.Sink{{}}, Value: true, Log: log, Stats: pl.stats, Pool: pl.pool}
	one := piece{language: languages()[0].Name, function: c.FuncName, options: options, at: c.At}
	if strings.HasSuffix(c.Func, ".so") {
		if one.language = pluginLanguage; !slices.Contains(known().Languages, one.language) {
			return c.At(errors.New("this build has no Go plugins"), "use a build with cgo for Linux, macOS or FreeBSD")
		}
	}
	return g.add(pl, one, c.Func, "column "+c.Name)
}

// pluginLanguage is the one of code in a file that ends in .so.
const pluginLanguage = "plugin"

// load makes the whole of the code that the pieces hold, or returns what is wrong
// with each of them. A trial leaves no trace.
func (g *program) load(ctx context.Context, codes []script.Code, trial bool) (script.Script, error) {
	var loaded []script.Script
	var faults []error
	for i, code := range codes {
		one, err := g.pieces[i].load(ctx, code, trial)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		loaded = append(loaded, one)
	}
	if err := config.Join(faults...); err != nil {
		for _, one := range loaded {
			_ = one.Close() // it has not run
		}
		return nil, err
	}
	return g.join(ctx, loaded)
}

func (g *program) join(ctx context.Context, loaded []script.Script) (script.Script, error) {
	var first script.Script
	if g.pipeline.Script != nil {
		first, loaded = loaded[0], loaded[1:]
	} else {
		var err error
		if first, err = passthrough.Language().Load(ctx, script.Code{}, g.delivery()); err != nil {
			return nil, err
		}
	}
	if len(g.columns) == 0 {
		return first, nil
	}
	columns := append([]computed.Column(nil), g.columns...)
	for i, column := range g.coded {
		columns[column].Code = loaded[i]
	}
	return computed.New(g.pipeline.Name, first, columns, g.sinks), nil
}

func (p *piece) load(ctx context.Context, code script.Code, trial bool) (script.Script, error) {
	options := p.options
	if trial {
		options.Log, options.Stats, options.Pool = slog.New(slog.DiscardHandler), nil, nil
	}
	code.Func = p.function
	loaded, err := find(languages(), languageName, p.language).Load(ctx, code, options)
	if err != nil {
		return nil, p.at(scriptFault(err, code.Text), event.HintOf(err))
	}
	return loaded, nil
}

// hint is for a text that was taken for a path and looks like something else.
func (p *piece) hint(err error) string {
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(p.origin.Path(), " (=") {
		return "code on one line defines a function: function main(row) return row.a end"
	}
	return ""
}

// start loads the program, such that it can be replaced while it runs if there is
// code in it.
func (g *program) start(ctx context.Context, l *loader.Loader, log *slog.Logger) (script.Script, error) {
	if len(g.pieces) == 0 {
		return g.load(ctx, nil, false)
	}
	c := reload.Config{Loader: l, Load: g.load, Sinks: len(g.sinks), Log: log}
	for _, p := range g.pieces {
		c.Origins = append(c.Origins, p.origin)
	}
	s, err := reload.New(ctx, c)
	var unread *reload.ReadError
	if errors.As(err, &unread) {
		p := g.pieces[unread.Origin]
		return nil, p.at(unread.Err, cmp.Or(event.HintOf(err), p.hint(err)))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
