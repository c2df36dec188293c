package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
)

// Changes lists by name what Reload did to the pipelines.
type Changes struct {
	Started   []string // new in the configuration
	Restarted []string // drained and started with their new settings
	Stopped   []string // drained, because the configuration does not have them any more
	Unchanged []string // not touched
}

// Reload makes c the configuration of a running engine. It drains and restarts the
// pipelines whose settings differ, drains those that c does not have, starts those that
// are new, and does not touch the others. It returns when that is done.
//
// Reload first checks c as Open does. If c has a fault, or changes what a running
// engine cannot change (data, http, query and traces), Reload returns an error and nothing has
// changed. If ctx ends while pipelines drain, they stay stopped.
//
// A pipeline that changed is restarted even if it had ended or failed. Changed code in
// files is not a change of the configuration: see CheckScripts.
func (e *Engine) Reload(ctx context.Context, c *config.Config) (*Changes, error) {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	if err := e.acquire(); err != nil {
		return nil, err
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.release()
	}()
	a, err := assemble(ctx, c, e.opts, e.shared)
	if err != nil {
		return nil, err
	}
	if err := e.checkFixed(a.Config); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if err := e.opts.configureServices(a.Config); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if err := closeFunctions(e.setFunctions(a)); err != nil {
		e.log.Warn("closing a function failed", "error", err)
	}
	e.budget.SetLimit(int64(a.Config.StateMemory))
	e.warnOfKeywords(a.Config)
	return e.replace(ctx, a)
}

// warnOfKeywords logs which columns queries must write in quotes.
func (e *Engine) warnOfKeywords(c *config.Config) {
	for _, fault := range c.KeywordColumns() {
		e.log.Warn("queries must write a column in quotes", "error", fault, "hint", fault.Hint)
	}
}

// acquire keeps Run from returning until release.
func (e *Engine) acquire() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ctx == nil:
		return errors.New("reload: the engine is not running yet")
	case e.draining || e.ended:
		return errors.New("reload: the engine is stopping")
	}
	e.active++
	return nil
}

// checkFixed compares the settings that only a restart can change.
func (e *Engine) checkFixed(c *config.Config) error {
	for _, setting := range []struct{ name, before, after string }{
		{"data", e.data, c.Data}, {"http", e.config.HTTP, c.HTTP}, {"query", describeQuery(e.config.Query), describeQuery(c.Query)},
		{"traces", describeTraces(e.config.Traces), describeTraces(c.Traces)},
		{"console", describeConsole(e.config.Console), describeConsole(c.Console)},
	} {
		if setting.before != setting.after {
			return event.WithHint(fmt.Errorf("%s changed from %q to %q, which a running engine cannot apply", setting.name, setting.before, setting.after),
				"restart the engine, or undo this change")
		}
	}
	return nil
}

// replace puts the pipelines of a in the place of the running ones.
func (e *Engine) replace(ctx context.Context, a *Assembly) (*Changes, error) {
	var changes Changes
	var fresh []*Pipeline // to start
	var old []*runner     // to drain
	kept := map[string]*runner{}
	sameCode := e.config.SharesCode(a.Config)
	for _, p := range a.Pipelines {
		name := p.Config.Name
		r := e.runner(name)
		switch {
		case r == nil:
			changes.Started = append(changes.Started, name)
			fresh = append(fresh, p)
		case sameCode && r.parts.Config.Equal(&p.Config):
			changes.Unchanged = append(changes.Unchanged, name)
			kept[name] = r
		default:
			changes.Restarted = append(changes.Restarted, name)
			fresh, old = append(fresh, p), append(old, r)
		}
	}
	for _, r := range e.runners {
		if name := r.parts.Config.Name; !slices.Contains(a.names(), name) {
			changes.Stopped = append(changes.Stopped, name)
			old = append(old, r)
		}
	}
	for _, p := range a.Pipelines { // copies of those that continue, made for the check
		if kept[p.Config.Name] != nil {
			e.closeParts(p)
		}
	}
	err := e.drainAll(ctx, old)
	if err == nil {
		err = e.startFresh(a, fresh, kept)
	}
	if err != nil {
		for _, p := range fresh {
			e.closeParts(p)
		}
		return nil, err
	}
	return &changes, nil
}

// closeParts closes the parts of a pipeline that does not run. A failure changes nothing
// for the others.
func (e *Engine) closeParts(p *Pipeline) {
	if err := p.close(); err != nil {
		e.log.Warn("closing a pipeline failed", "pipeline", p.Config.Name, "error", err)
	}
}

// drainAll drains pipelines, and closes their parts once all have ended: one may read the state of
// another until then.
func (e *Engine) drainAll(ctx context.Context, runners []*runner) error {
	for _, r := range runners {
		r.pipeline.Drain()
	}
	for _, r := range runners {
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("reload: pipeline %s was still draining: %w", r.parts.Config.Name, ctx.Err())
		}
	}
	for _, r := range runners {
		r.pipeline.Close()
		e.closeParts(r.parts)
	}
	return nil
}

// startFresh starts new pipelines and keeps others, in the order of the configuration.
func (e *Engine) startFresh(a *Assembly, fresh []*Pipeline, kept map[string]*runner) error {
	started, err := e.newRunners(fresh)
	if err != nil {
		return err
	}
	if err := admin.WriteNames(e.data, a.names()); err != nil {
		return err
	}
	var all []*runner
	for _, p := range a.Pipelines {
		if r := kept[p.Config.Name]; r != nil {
			all = append(all, r)
			continue
		}
		all, started = append(all, started[0]), started[1:]
	}
	e.mu.Lock()
	e.config, e.runners = a.Config, all
	for _, r := range all {
		if kept[r.parts.Config.Name] == nil && !e.draining {
			e.start(r)
		}
	}
	e.mu.Unlock()
	e.stopWatch()
	e.startWatch()
	return nil
}

// runner returns the runner of a pipeline, or nil.
func (e *Engine) runner(name string) *runner {
	i := slices.IndexFunc(e.runners, func(r *runner) bool { return r.parts.Config.Name == name })
	if i < 0 {
		return nil
	}
	return e.runners[i]
}

// CheckScripts looks for new versions of all scripts now, and logs the result for each.
// Otherwise the engine looks at the interval of the configuration, and soon after a
// local file has changed. It does not wait for the result.
func (e *Engine) CheckScripts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watch != nil {
		e.watch.watcher.Ask()
	}
	for _, r := range e.runners {
		if r.parts.Shadow != nil {
			r.parts.Shadow.Check()
		}
	}
}

// describeQuery shows the settings of queries without their secrets.
func describeQuery(q config.Query) string {
	token := sha256.Sum256([]byte(q.Token))
	return fmt.Sprintf("listen %s token %x cert %s key %s time %v memory %d slow %v", q.Listen, token[:4], q.Cert, q.Key, q.Time, q.Memory, q.Slow)
}

// describeTraces shows the settings of traces without their secrets.
func describeTraces(t config.Traces) string {
	headers := sha256.Sum256(fmt.Append(nil, t.Headers)) // sorted by name
	return fmt.Sprintf("endpoint %s sample %v headers %x", t.Endpoint, t.Sample, headers[:4])
}

// describeConsole shows the settings of the console without their secret.
func describeConsole(c config.Console) string {
	token := sha256.Sum256([]byte(c.Token))
	return fmt.Sprintf("disabled %v token %x", c.Disabled, token[:4])
}
