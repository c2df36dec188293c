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
	code, err := a.locateShadow(p, log.With("shadow", true))
	if err != nil {
		return err
	}
	p.Shadow, p.ShadowFault = shadow.New(ctx, shadow.Config{
		Name: code.pieces[0].origin.String(), Sample: p.Config.Shadow.Sample, Sinks: p.comparedSinks(),
		Live: live, LiveName: p.ScriptOrigin,
		Load: func(ctx context.Context, now func() time.Time, replaced func()) (*reload.Script, error) {
			code.replaced, code.now = replaced, now
			for i := range code.pieces {
				code.pieces[i].options.Trial = &script.Trial{Now: now, LimitLog: true}
			}
			loaded, err := code.load(ctx, a.loader, code.log)
			if err != nil {
				return nil, err
			}
			return loaded.(*reload.Script), nil
		},
		Memory: func() int { return p.beside.Stats().Memory },
		Check:  a.Config.Reload, Log: code.log,
	})
	p.Mistakes = append(p.Mistakes, code.mistakes...)
	return nil
}

// locateShadow finds out where the code of a shadow is, as locateCode does. The code measures nothing, and
// runs in VMs of its own: one for the script, and one for each computed column.
func (a *Assembly) locateShadow(p *Pipeline, log *slog.Logger) (*code, error) {
	beside := &Pipeline{Config: p.Config}
	beside.Config.Script = p.Config.Shadow.With(p.Config.Script)
	code, err := a.locateCode(beside, p.scriptSinks(), "shadow of "+p.Config.Name, log)
	if err != nil {
		return nil, err
	}
	p.beside = pool.New(pool.Settings{Core: 1, Max: 1})
	for i := range code.pieces {
		code.pieces[i].options.Stats, code.pieces[i].options.Pool = nil, p.beside
	}
	return code, nil
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
