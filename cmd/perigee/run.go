package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/script/reload"
	"github.com/perigeedb/perigee/server"
)

type runCommand struct {
	configFlags
	logFlags
}

func (runCommand) Help() string {
	return `Runs every pipeline of the configuration until its source is exhausted; a queue never is.

SIGTERM and SIGINT (Ctrl-C) drain: what was read is finished, then the engine exits. A second signal
stops at once. Neither loses anything: what was not finished is read again at the next start.

SIGHUP looks for new versions of scripts at once; otherwise they are noticed when their files change,
and every 30 s on other hosts. A new version is tried first; one that fails is refused.

While it runs, /metrics, /ready and /ping answer at the http address (default 127.0.0.1:4290), and
"perigee query" and "perigee dlq" reach it through the data folder.

Exit code: 0 when everything read was settled, 1 when a pipeline failed, 130 or 143 after a second
signal.

Examples:
  perigee run pipeline.yaml
  perigee run https://config.example.com/pipeline.yaml --allow config.example.com
  MYSQL_PASSWORD=secret perigee run examples/email/redis-mysql.yaml --log-format json`
}

func (r *runCommand) Run(c *console) error {
	favourThroughput()
	screen := newScreen(c.err)
	log := r.logger(c, screen)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	plan, err := assemble(ctx, r.configFlags, c, log)
	if err != nil {
		return err
	}
	e, err := start(plan, log)
	if err != nil {
		return err
	}
	if plan.usesLua() {
		logLua(log)
	}
	signalled := e.obey(stop)
	end := screen.show(progressOf(e.pipelines))
	err = e.run(ctx)
	end()
	err = errors.Join(err, e.close())
	if code := signalled(); code != 0 {
		return code
	}
	return err
}

// An engine is a configuration at work in its data folder.
type engine struct {
	log       *slog.Logger
	pipelines []*pipeline.Pipeline
	scripts   *reload.Watcher
	closers   []func() error // in the order of opening
}

// start opens what belongs to the engine: lock, dead letters, port and socket.
// It takes the plan over.
func start(pl *plan, log *slog.Logger) (e *engine, err error) {
	e = &engine{log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	lock, err := own(pl.Data)
	if err != nil {
		return e, errors.Join(err, pl.close())
	}
	e.closers = append(e.closers, lock.Close, pl.close)
	letters, err := deadletter.Open(pl.Data)
	if err != nil {
		return e, err
	}
	e.closers = append(e.closers, letters.Close)
	pl.store.lend(letters)
	if err := e.make(pl, letters); err != nil {
		return e, err
	}
	if err := e.serve(pl, letters); err != nil {
		return e, err
	}
	e.watch(pl)
	return e, nil
}

// make makes the pipelines, and opens what several sinks of one need.
func (e *engine) make(pl *plan, letters *deadletter.Store) error {
	store, err := e.openOutbox(pl)
	if err != nil {
		return err
	}
	worker, err := pipeline.WorkerName(pl.Data)
	if err != nil {
		return err
	}
	reached, err := killAt(os.Getenv(killVariable))
	if err != nil {
		return err
	}
	for _, p := range pl.parts {
		e.pipelines = append(e.pipelines, pipeline.New(pipeline.Config{
			Name: p.config.Name, Source: p.source, Script: p.script, Sinks: p.pipelineSinks(),
			DeadLetters: letters, Outbox: store, Lanes: p.config.Lanes, Limits: p.limits,
			Worker: worker, Lease: p.config.Lease, Folder: pl.Data, Log: e.log, Reached: reached,
		}))
	}
	return nil
}

// openOutbox opens the outbox where a pipeline has several sinks or has had them.
func (e *engine) openOutbox(pl *plan) (*outbox.Store, error) {
	several := slices.ContainsFunc(pl.parts, func(p part) bool { return len(p.pipelineSinks()) > 1 })
	if !several && !outbox.Exists(pl.Data) {
		return nil, nil
	}
	store, err := outbox.Open(pl.Data)
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, store.Close)
	return store, nil
}

// watch looks for new versions of scripts until the engine is closed.
func (e *engine) watch(pl *plan) {
	e.scripts = reload.NewWatcher(pl.replaceable(), pl.Reload)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { e.scripts.Run(ctx) })
	e.closers = append(e.closers, func() error {
		stop()
		watching.Wait()
		return nil
	})
}

// serve opens the port for monitors and the socket for the command line.
func (e *engine) serve(pl *plan, letters *deadletter.Store) error {
	handlers := (&desk{store: letters, pipelines: pl.names(), engine: true}).handlers()
	maps.Copy(handlers, (&ledger{parts: pl.parts, data: pl.Data, pipelines: e.pipelines}).handlers())
	handlers["POST /query"] = pl.store.handler()
	s, err := server.Start(server.Config{
		Address: pl.HTTP, Folder: pl.Data, Pipelines: e.pipelines, Log: e.log,
		Metrics:  append(pluginMetrics(), newVersions(pl.parts), server.Measurements(pl.stats), server.VMs(append(pl.pools, pl.pool)...)),
		Handlers: handlers,
	})
	if err != nil {
		return event.WithHint(err, `another program listens there: set http to another address, or to "off"`)
	}
	if s.Address() != nil {
		e.log.Info("serving http", "address", s.Address().String())
	}
	e.closers = append(e.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return s.Close(ctx)
	})
	return nil
}

// run runs the pipelines side by side. One that fails does not stop the others.
func (e *engine) run(ctx context.Context) error {
	errs := make([]error, len(e.pipelines))
	var running sync.WaitGroup
	for i, p := range e.pipelines {
		running.Go(func() {
			began := time.Now()
			if errs[i] = p.Run(ctx); errs[i] != nil && ctx.Err() == nil {
				e.log.Error("pipeline failed", "pipeline", p.Name(), "error", errs[i])
			}
			e.conclude(p, time.Since(began))
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// conclude logs what a pipeline has done.
func (e *engine) conclude(p *pipeline.Pipeline, took time.Duration) {
	s := p.Stats()
	e.log.Info("pipeline ended", "pipeline", p.Name(), "events", s.Committed, "rows", rowsOf(s), "dropped", s.Dropped,
		"dead", deadOf(s), "seconds", fmt.Sprintf("%.1f", took.Seconds()), "events_per_s", perSecond(s.Committed, took))
}

// close closes in the opposite order of opening.
func (e *engine) close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i]())
	}
	e.closers = nil
	return errors.Join(errs...)
}

func rowsOf(s pipeline.Stats) (rows uint64) {
	for _, one := range s.Sinks {
		rows += one.Rows
	}
	return rows
}

func deadOf(s pipeline.Stats) (dead uint64) {
	for _, n := range s.Dead {
		dead += n
	}
	return dead
}

func perSecond(n uint64, d time.Duration) uint64 { return uint64(float64(n) / max(d.Seconds(), 1e-3)) }
