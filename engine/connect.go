package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/sink"
)

// A Connection is the result of trying to connect to one source or sink.
type Connection struct {
	Pipeline string // empty for the engine's own port
	Part     string // "source", "sink", "sink NAME" where the name is not the kind, or "http"
	Kind     string // or the address of the port
	Checked  bool   // false if the kind cannot be checked without reading or writing
	Err      error  // what a run would fail with

	Tables []sink.Table // that a sink creates in the user's database; nil if checking failed
}

// Connect connects to every source and sink at the same time and checks them, for no
// longer than timeout. It also checks that an HTTP port that the configuration names is
// free. It changes nothing.
func (a *Assembly) Connect(ctx context.Context, timeout time.Duration) []Connection {
	var all []Connection
	var checks []func(context.Context) error
	var listings []func(context.Context) ([]sink.Table, error)
	add := func(c Connection, check func(context.Context) error, list func(context.Context) ([]sink.Table, error)) {
		c.Checked = check != nil
		all, checks, listings = append(all, c), append(checks, check), append(listings, list)
	}
	for _, p := range a.Pipelines {
		add(Connection{Pipeline: p.Config.Name, Part: "source", Kind: p.Config.Source.Kind}, p.Source.Traits().Check, nil)
		for _, s := range p.Sinks {
			c := Connection{Pipeline: p.Config.Name, Part: "sink", Kind: s.Config.Kind}
			if s.Config.Name != s.Config.Kind {
				c.Part += " " + s.Config.Name
			}
			traits := s.Sink.Traits()
			check := traits.Check
			if traits.Units != nil && check != nil {
				check = func(ctx context.Context) error {
					return cmp.Or(traits.Check(ctx), a.checkStateAt(ctx, p, state.Home{Name: s.Config.Name, Units: traits.Units}))
				}
			}
			add(c, check, traits.Tables)
		}
	}
	if address, required := a.HTTP(); required {
		add(Connection{Part: "http", Kind: address}, func(ctx context.Context) error { return checkPort(ctx, address) }, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var checking sync.WaitGroup
	for i, check := range checks {
		if check != nil {
			checking.Go(func() {
				all[i].Err = runCheck(ctx, func(ctx context.Context) (err error) {
					if err = check(ctx); err == nil && listings[i] != nil {
						all[i].Tables, err = listings[i](ctx)
					}
					return err
				}, timeout)
			})
		}
	}
	checking.Wait()
	return all
}

// checkPort listens for a moment.
func checkPort(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return event.WithHint(err, hintOfPort)
	}
	return l.Close()
}

// runCheck returns soon after the timeout even if the check ignores ctx.
func runCheck(ctx context.Context, check func(context.Context) error, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- check(ctx) }()
	select {
	case err := <-done:
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("no answer within %s: %w", timeout, err)
		}
		return err
	case <-time.After(timeout + time.Second):
		return fmt.Errorf("no answer within %s", timeout)
	}
}
