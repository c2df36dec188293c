package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/engine/compare"
	"github.com/perigeedb/perigee/engine/shadow"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/reload"
)

// addShadow adds the shadow of a pipeline whose script is loaded. It returns faults that the pipeline must
// not start with; a new version that does not load is ShadowFault.
func (a *Assembly) addShadow(ctx context.Context, p *Pipeline, log *slog.Logger) error {
	live := p.Script.(*reload.Script) // the configuration has checked that there is a script
	set, err := a.locateShadow(p, log.With("shadow", true))
	if err != nil {
		return err
	}
	p.Shadow, p.ShadowFault = shadow.New(ctx, shadow.Config{
		Name: set.sources[0].origin.String(), Sample: p.Config.Shadow.Sample, Sinks: p.comparedSinks(),
		Live: live, LiveName: p.ScriptOrigin,
		Load: func(ctx context.Context, now func() time.Time, replaced func()) (*reload.Script, error) {
			set.replaced, set.now = replaced, now
			for i := range set.sources {
				set.sources[i].options.Trial = &script.Trial{Now: now, LimitLog: true}
			}
			loaded, err := set.load(ctx, a.loader, set.log)
			if err != nil {
				return nil, err
			}
			return loaded.(*reload.Script), nil
		},
		Memory: func() int { return p.beside.Stats().Memory },
		Check:  a.Config.Reload, Log: set.log,
	})
	p.Mistakes = append(p.Mistakes, set.mistakes...)
	return nil
}

// locateShadow finds out where the code of a shadow is, as locateScripts does. The code measures nothing, and
// runs in VMs of its own: one for the script, and one for each computed column.
func (a *Assembly) locateShadow(p *Pipeline, log *slog.Logger) (*scriptSet, error) {
	beside := &Pipeline{Config: p.Config}
	beside.Config.Script = p.Config.Shadow.With(p.Config.Script)
	set, err := a.locateScripts(beside, p.scriptSinks(), "shadow of "+p.Config.Name, log)
	if err != nil {
		return nil, err
	}
	p.beside = pool.New(pool.Settings{Core: 1, Max: 1})
	for i := range set.sources {
		set.sources[i].options.Stats, set.sources[i].options.Pool = nil, p.beside
	}
	return set, nil
}

// comparedSinks describes the sinks to package compare.
func (p *Pipeline) comparedSinks() (sinks []compare.Sink) {
	for _, s := range p.scriptSinks() {
		sinks = append(sinks, compare.Sink{Name: s.Name, Columns: s.Columns, ColumnsOnly: s.ColumnsOnly})
	}
	return sinks
}

// running returns the script that the pipeline runs: with a tap if it has a shadow.
func (p *Pipeline) running() script.Script {
	if p.Shadow == nil {
		return p.Script
	}
	return p.Shadow.Tap()
}
