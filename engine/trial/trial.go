// Package trial runs what a pipeline does with events between its source and its sinks, through
// the engine's own code and under the script's limits, without a source, a server or a data
// folder. Tests of pipelines and comparisons of two versions of a script use it.
//
// A Pipeline takes whole batches, as an engine does, and reuses the memory of its results. One
// goroutine uses it at a time.
package trial

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/engine"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Options say how a pipeline is loaded.
type Options struct {
	// Code replaces the pipeline's script, such as by another version of it.
	Code *script.Code
	// Documents keeps the documents of all rows. Otherwise those of sinks that store only
	// columns may be empty.
	Documents bool
	// Functions are functions in Go, such as "geo.lookup", that Replace replaces. Those that
	// this program does not have exist only while they are replaced.
	Functions []string
	// Coverage collects the lines that run; the code runs interpreted then. It may be nil.
	Coverage *script.Coverage
	// NoLog discards what code logs; TakeLog returns nothing.
	NoLog bool
}

// A Pipeline is the loaded stages of a pipeline.
type Pipeline struct {
	*engine.Stages

	limit  script.MaxEvent
	result event.Result
	timers event.Batch // the last that ran
	log    recorder

	clock    atomic.Pointer[time.Time]
	replaced atomic.Pointer[map[string]script.Func]
}

// Load loads a pipeline of a configuration, or its only one for "". The faults of the
// configuration and of the code are config.Errors. The caller closes the Pipeline.
func Load(ctx context.Context, c *config.Config, name string, opts engine.Options, with Options) (*Pipeline, error) {
	p := &Pipeline{}
	log := slog.New(&p.log)
	if with.NoLog {
		log = nil
	}
	stages, err := engine.LoadStages(ctx, c, name, opts, engine.StageOptions{
		Log:       log,
		Trial:     &script.Trial{Now: p.now, Replace: p.replacement, Coverage: with.Coverage},
		Code:      with.Code,
		Documents: with.Documents,
		Modules:   missingModules(with.Functions, opts.Kinds.Modules),
	})
	if err != nil {
		return nil, err
	}
	p.Stages, p.limit.Bytes = stages, stages.MaxEvent
	p.result.Outputs = make([]event.Output, len(stages.Sinks))
	return p, nil
}

// Run passes a batch through the stages. It calls handle with each part of the batch that ran,
// which is all of it unless a limit of the batch ends a run early. The result is valid until
// handle returns.
func (p *Pipeline) Run(ctx context.Context, in *event.Batch, handle func(part *event.Batch, res *event.Result) error) error {
	return script.RunAll(ctx, limited{p}, in, &p.result, 0, func(part *event.Batch, _ *script.LimitError) error {
		return handle(part, &p.result)
	})
}

// limited is a Pipeline as a script that obeys max_event.
type limited struct{ *Pipeline }

// Run implements script.Script.
func (l limited) Run(ctx context.Context, in *event.Batch, res *event.Result) error {
	return l.limit.Run(ctx, l.Stages, in, res)
}

// Wait moves the clock on, which stands still, and runs the timers that become due meanwhile, in
// the order of their times and with the clock at these. It calls handle as Run does. Positions of
// timers count from that of the last call on.
func (p *Pipeline) Wait(ctx context.Context, d time.Duration, handle func(part *event.Batch, res *event.Result) error) error {
	until := p.now().Add(d)
	if p.State != nil && p.State.FollowsEvents() {
		p.Freeze(until)
		return p.RunDue(ctx, handle)
	}
	for standing := 0; p.State != nil; {
		at, found, err := p.State.NextTimer(ctx)
		if err != nil {
			return err
		}
		if !found || at.After(until) {
			break
		}
		if standing++; at.After(p.now()) {
			p.Freeze(at)
			standing = 0
		}
		if standing > standingMax {
			return stuckTimers(standing, p.now())
		}
		if err := p.runTimers(ctx, handle); err != nil {
			return err
		}
	}
	p.Freeze(until)
	return nil
}

// RunDue runs the timers that are due by a clock that follows the times of events. It calls handle as
// Run does. It does nothing where the clock does not follow them.
func (p *Pipeline) RunDue(ctx context.Context, handle func(part *event.Batch, res *event.Result) error) error {
	for standing, last := 0, (time.Time{}); p.State != nil && p.State.FollowsEvents(); standing++ {
		at, found, err := p.State.NextTimer(ctx)
		if err != nil || !found || at.After(p.State.Clock()) {
			return err
		}
		if at.After(last) {
			standing, last = 0, at
		}
		if standing > standingMax {
			return stuckTimers(standing, at)
		}
		if err := p.runTimers(ctx, handle); err != nil {
			return err
		}
	}
	return nil
}

func stuckTimers(runs int, at time.Time) error {
	return fmt.Errorf("timers have run %d times at %s: the script sets them again for a time that has come", runs, at.UTC().Format(time.RFC3339Nano))
}

// standingMax bounds how many batches of timers run while the clock stands still.
const standingMax = 1000

// runTimers runs the timers that are due.
func (p *Pipeline) runTimers(ctx context.Context, handle func(part *event.Batch, res *event.Result) error) error {
	b := &p.timers
	first := b.Range.End()
	b.Reset()
	b.Range.First = first
	if err := p.State.ReadTimers(ctx, b, engine.DefaultBatchEvents); err != nil {
		return err
	}
	return p.Run(ctx, b, handle)
}

// Freeze sets the clock of the script and of make://timestamp. The zero Time is the system's
// clock.
func (p *Pipeline) Freeze(at time.Time) {
	if at.IsZero() {
		p.clock.Store(nil)
		return
	}
	p.clock.Store(&at)
}

func (p *Pipeline) now() time.Time {
	if at := p.clock.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// Replace sets the functions that run in place of functions in Go, by their names, such as
// "geo.lookup". nil restores all.
func (p *Pipeline) Replace(functions map[string]script.Func) {
	functions = maps.Clone(functions)
	p.replaced.Store(&functions)
}

func (p *Pipeline) replacement(function string) script.Func {
	if all := p.replaced.Load(); all != nil {
		return (*all)[function]
	}
	return nil
}

// missingModules returns modules with the functions that no module of the program has.
func missingModules(functions []string, known []script.Module) (missing []script.Module) {
	byName := map[string]map[string]script.Func{}
	for _, function := range functions {
		module, name, _ := strings.Cut(function, ".")
		if name == "" || IsStandard(module) || hasModule(known, module) {
			continue
		}
		if byName[module] == nil {
			byName[module] = map[string]script.Func{}
			missing = append(missing, script.Module{Name: module, Functions: byName[module]})
		}
		byName[module][name] = absent
	}
	return missing
}

func hasModule(modules []script.Module, name string) bool {
	for _, m := range modules {
		if m.Name == name {
			return true
		}
	}
	return false
}
