// Package engine runs pipelines: it turns a configuration and a list of kinds into a
// running engine. It is all that the perigee command uses to run, check and verify
// pipelines, and it is for programs that do so themselves.
//
//	options := engine.Options{Kinds: engine.Kinds{
//		Sources:   []source.Kind{redis.Kind(), myqueue.Kind()},
//		Sinks:     []sink.Kind{mysql.Kind()},
//		Languages: []script.Language{gopherlua.Language()},
//	}}
//	e, err := engine.OpenFile(ctx, "pipeline.yaml", options)
//	if err != nil { … }
//	defer e.Close()
//	err = e.Run(ctx)
//
// A configuration is a file, an address, or a Go value: see package config. It names
// kinds; Kinds lists the ones that exist, and nothing else is linked in. Sources, sinks
// and languages of your own go into that list beside those of this module, and
// functions in Go that scripts can call are in Kinds.Modules.
//
// Open locks the data folder, and opens the dead letters, the HTTP port and the socket
// there. Run reads until every source has ended, Drain was called or its context ended.
// Reload replaces the configuration of a running engine: it restarts the pipelines that
// changed and no others. Assemble does what can be done without a data folder; it is
// the check before a run.
//
// An Engine is safe for concurrent use, except that Run is called once.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/datafolder"
	"github.com/perigeedb/perigee/pipeline"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/isolate"
	"github.com/perigeedb/perigee/script/pool"
	"github.com/perigeedb/perigee/script/reload"
	"github.com/perigeedb/perigee/server"
	"github.com/perigeedb/perigee/sink/changelog"
)

// Options are what an engine is made with besides its configuration. The zero value
// has no kinds; all other zero fields are useful.
type Options struct {
	Kinds Kinds

	// Services live in the data folder beside the pipelines, such as the event store.
	Services []Service

	// Isolation runs scripts with "isolate: process". It is what isolate.Init returned,
	// which must be called first in main; without it, such scripts are refused.
	Isolation *isolate.Launcher

	// Allow lists hosts that the configuration and code may come from, in addition to
	// those that the configuration allows. loader.ParseAllow has the syntax.
	Allow []string

	// HTTP is the address to listen on where the configuration names none; empty means
	// none. If another program listens there, the engine logs a warning and runs without.
	// An address that the configuration names and that is taken is an error.
	HTTP string

	// NoSocket leaves out the socket in the data folder on which commands reach the engine.
	NoSocket bool

	// Lookup finds environment variables; nil means os.LookupEnv.
	Lookup func(name string) (value string, found bool)

	// Log gets what happens to pipelines; nil discards it.
	Log *slog.Logger

	// LogLevel is the level of Log, which perigee log-level changes; nil means that it cannot.
	LogLevel *slog.LevelVar

	// OnPoint is called at each Point that a batch passes, for tests that kill the
	// process there. It may be nil.
	OnPoint func(pipeline.Point)

	// StateFlushAge is how long changes of states wait for the disk, and half as long as they wait for
	// the archive, for tests that kill the process while it writes them. It also makes snapshots of
	// small archives. 0 means the defaults of packages nodedb and state.
	StateFlushAge time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Lookup == nil {
		o.Lookup = os.LookupEnv
	}
	return o
}

func (o *Options) configureServices(c *config.Config) error {
	for _, s := range o.Services {
		if err := s.Configure(c); err != nil {
			return err
		}
	}
	return nil
}

// A Service shares the data folder and the life of an engine.
type Service interface {
	// Configure gives the service the configuration, before Start and when Reload changes
	// it, before pipelines start. After an error the configuration is refused, and the
	// service goes on with the one before.
	Configure(c *config.Config) error
	// Start is called by Open, before any pipeline runs. An error ends Open; Close is
	// then called too.
	Start(h Host) error
	// Close is called by Engine.Close, after the sources and sinks were closed.
	Close() error
}

// A Host is what an engine offers to a Service.
type Host struct {
	Data        string // the data folder, which this process has locked
	DeadLetters *deadletter.Store
	Query       config.Query
	Log         *slog.Logger
	// Options are those of the engine.
	Options Options
	// HTTP is the address of the port that HandlePort adds to; "" if there is none.
	HTTP string
	// Admin has the operations on the engine's pipelines.
	Admin *admin.Admin
	// Status returns what the pipelines do.
	Status func(context.Context) ([]admin.Status, error)
	// Stats is what scripts measure.
	Stats *script.Stats
	// States answers GET /state/NAME/PATH with nodes of the pipelines' states; see
	// admin.StateHandler. A service that has a port serves it there.
	States http.Handler
	// Recent returns the last records of the log, oldest first.
	Recent func() []LogRecord
	// Handle adds a route to the engine's socket, with a pattern as http.ServeMux has
	// them. It may be called until Start returns.
	Handle func(pattern string, handler http.Handler)
	// HandlePort adds a route to the HTTP port, whose clients may be anybody who reaches the
	// address: the handler says who may use it. It may be called until Start returns.
	HandlePort func(pattern string, handler http.Handler)
	// Route returns the handler of a route of the socket, by its pattern, or nil. It may be called
	// once all services have started.
	Route func(pattern string) http.Handler
	// Closing is closed when the engine begins to close, before it waits for the requests
	// on its socket: those that never end by themselves end then.
	Closing <-chan struct{}
}

// An Engine runs the pipelines of a configuration in its data folder.
type Engine struct {
	opts        Options
	log         *slog.Logger
	recent      *recentLog // of log
	data        string
	worker      string
	shared      *shared
	deadLetters *deadletter.Store
	server      *server.Server
	closers     []io.Closer // in the order of opening
	closing     context.Context
	beginClose  context.CancelFunc

	reloading sync.Mutex // held by Reload

	mu        sync.Mutex
	idle      *sync.Cond     // active is 0
	config    *config.Config // in effect
	runners   []*runner      // in the order of the configuration
	functions []Function
	outbox    *outbox.Store    // nil until a pipeline needs it
	changelog *changelog.Store // nil until a pipeline needs it
	budget    *state.Budget    // of all states
	traces    *traces          // nil for none
	watch     *watch
	ctx       context.Context // of Run; nil before
	active    int             // pipelines that run, and reloads
	draining  bool
	ended     bool // Run has returned
}

// A runner runs one pipeline.
type runner struct {
	parts    *Pipeline
	pipeline *pipeline.Pipeline
	started  time.Time
	done     chan struct{} // closed when the pipeline has ended
	err      error         // after done
}

// OpenFile is Load and Open.
func OpenFile(ctx context.Context, location string, opts Options) (*Engine, error) {
	c, err := Load(ctx, location, opts)
	if c == nil {
		return nil, err
	}
	return Open(ctx, c, opts)
}

// Open assembles the pipelines of c, locks the data folder, and opens what belongs to
// the engine: dead letters, HTTP port and socket. No event is read before Run. The
// caller calls Close.
func Open(ctx context.Context, c *config.Config, opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	recent := new(recentLog)
	opts.Log = recent.newLog(opts.Log)
	e := &Engine{opts: opts, log: opts.Log, recent: recent, shared: newShared()}
	e.idle = sync.NewCond(&e.mu)
	e.closing, e.beginClose = context.WithCancel(context.Background())
	a, err := assemble(ctx, c, opts, e.shared)
	if err != nil {
		return nil, err
	}
	e.config, e.data = a.Config, a.Config.Data
	e.budget = state.NewBudget(int64(e.config.StateMemory))
	if err := e.open(a); err != nil {
		if len(e.runners) == 0 {
			err = errors.Join(err, a.Close())
		}
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Engine) open(a *Assembly) error {
	e.logData(a.Config)
	lock, err := datafolder.Lock(e.data)
	if err != nil {
		return err
	}
	e.closers = append(e.closers, lock)
	if e.worker, err = pipeline.WorkerName(e.data); err != nil {
		return err
	}
	if e.traces, err = e.startTraces(a.Config.Traces); err != nil {
		return err
	}
	if e.traces != nil {
		e.closers = append(e.closers, e.traces)
	}
	if e.deadLetters, err = deadletter.Open(e.data); err != nil {
		return err
	}
	e.closers = append(e.closers, e.deadLetters)
	if err := e.opts.configureServices(a.Config); err != nil {
		return err
	}
	e.setFunctions(a)
	e.warnOfKeywords(a.Config)
	routes, portRoutes := e.Admin().Handlers(), map[string]http.Handler{}
	address, _ := a.HTTP()
	for _, s := range e.opts.Services {
		e.closers = append(e.closers, s)
		err := s.Start(Host{
			Data: e.data, DeadLetters: e.deadLetters, Query: e.config.Query, Log: e.log,
			Options: e.opts, HTTP: address, Admin: e.Admin(),
			Status: e.Admin().Status, States: e.Admin().StateHandler(), Stats: e.shared.stats, Recent: e.recent.list,
			Handle:     func(pattern string, h http.Handler) { routes[pattern] = h },
			HandlePort: func(pattern string, h http.Handler) { portRoutes[pattern] = h },
			Route:      func(pattern string) http.Handler { return routes[pattern] },
			Closing:    e.closing.Done(),
		})
		if err != nil {
			return err
		}
	}
	if e.runners, err = e.newRunners(a.Pipelines); err != nil {
		return err
	}
	if err := admin.WriteNames(e.data, e.names()); err != nil {
		return err
	}
	if err := e.serve(a, routes, portRoutes); err != nil {
		return err
	}
	e.startWatch()
	return nil
}

// newRunners creates pipelines, and opens the outbox if one of them needs it.
func (e *Engine) newRunners(pipelines []*Pipeline) (runners []*runner, err error) {
	several := slices.ContainsFunc(pipelines, func(p *Pipeline) bool { return len(p.Sinks) > 1 })
	if e.outbox == nil && (several || outbox.Exists(e.data)) {
		if e.outbox, err = outbox.Open(e.data); err != nil {
			return nil, err
		}
		e.closers = append(e.closers, e.outbox)
	}
	for _, p := range pipelines {
		p.tap = tap.NewHub(p.tappedSinks())
		settings := pipeline.Config{
			Name: p.Config.Name, Source: p.Source, Script: p.running(), Sinks: p.pipelineSinks(),
			DeadLetters: e.deadLetters, Outbox: e.outbox, Lanes: p.Config.Lanes, Limits: p.limits,
			MaxEvent: cmp.Or(p.Config.MaxEvent, DefaultMaxEvent),
			Worker:   e.worker, Lease: p.Config.Lease, Folder: e.data, Log: e.log, Tap: p.tap, Tracer: e.traces.tracer(), OnPoint: e.opts.OnPoint,
		}
		settings.Reads = e.readsOf(p)
		if err := e.keepState(p, &settings); err != nil {
			return nil, err
		}
		runners = append(runners, &runner{parts: p, done: make(chan struct{}), pipeline: pipeline.New(settings)})
	}
	return runners, nil
}

// serve opens the port for monitors and the socket for commands.
func (e *Engine) serve(a *Assembly, routes, portRoutes map[string]http.Handler) (err error) {
	address, required := a.HTTP()
	folder := e.data
	if e.opts.NoSocket {
		folder = ""
	}
	e.server, err = server.Start(server.Config{
		Address: address, Optional: !required, Folder: folder, Pipelines: e.pipelines, Log: e.log, Handlers: routes, PortHandlers: portRoutes,
		Metrics: append(e.opts.Kinds.Metrics, &scriptMetrics{e}, server.ScriptStats(e.shared.stats), server.VMs(e.pools), e.traces),
	})
	if err != nil {
		return event.WithHint(err, hintOfPort)
	}
	if address := e.server.Address(); address != nil {
		e.log.Info("serving http", "address", address.String())
	}
	return nil
}

const hintOfPort = `another program listens there: set http to another address, or to "off"`

// Run runs the pipelines until all have ended. One that fails does not stop the others;
// Run returns the errors of all. When ctx ends, the pipelines stop at once: what was in
// flight is read again by the next run.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx != nil {
		return errors.New("engine: Run was called before")
	}
	e.ctx = ctx
	e.log.Info("engine started", "data", e.data, "pipelines", len(e.runners))
	for _, r := range e.runners {
		e.start(r)
	}
	for e.active > 0 {
		e.idle.Wait()
	}
	e.ended = true
	var errs []error
	for _, r := range e.runners {
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

// start runs a pipeline in a goroutine. The caller holds mu.
func (e *Engine) start(r *runner) {
	e.active++
	r.started = time.Now()
	if r.parts.Shadow != nil {
		r.parts.Shadow.Start()
	}
	go func() {
		err := r.pipeline.Run(e.ctx)
		r.parts.tap.Close()
		e.mu.Lock()
		defer e.mu.Unlock()
		if err != nil && e.ctx.Err() == nil && e.active > 1 { // otherwise Run returns it now
			e.log.Error("pipeline failed", "pipeline", r.pipeline.Name(), "error", err)
		}
		e.logEnd(r)
		r.err = err
		close(r.done)
		e.release()
	}()
}

// release ends what active counts. The caller holds mu.
func (e *Engine) release() {
	e.active--
	if e.active == 0 {
		e.idle.Broadcast()
	}
}

func (e *Engine) logEnd(r *runner) {
	s, took := r.pipeline.Stats(), time.Since(r.started)
	var rows, dead uint64
	for _, one := range s.Sinks {
		rows += one.Rows
	}
	for _, n := range s.Dead {
		dead += n
	}
	e.log.Info("pipeline ended", "pipeline", r.pipeline.Name(), "events", s.Committed, "rows", rows, "dropped", s.Dropped,
		"dead", dead, "seconds", fmt.Sprintf("%.1f", took.Seconds()),
		"events_per_s", uint64(float64(s.Committed)/max(took.Seconds(), 1e-3)))
}

// Drain makes the pipelines stop reading and finish what they have read; then Run
// returns. It does not wait, and may be called more than once.
func (e *Engine) Drain() {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	for _, p := range e.pipelines() {
		p.Drain()
	}
}

// Close closes everything that Open has opened. It is called after Run has returned, or
// instead of Run.
func (e *Engine) Close() error {
	e.beginClose()
	e.stopWatch()
	var errs []error
	if e.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, e.server.Close(ctx))
	}
	for _, r := range e.runners {
		r.pipeline.Close()
		errs = append(errs, r.parts.close())
	}
	e.runners = nil
	for _, c := range slices.Backward(e.closers) {
		errs = append(errs, c.Close())
	}
	e.closers = nil
	errs = append(errs, closeFunctions(e.functions))
	e.functions = nil
	return errors.Join(errs...)
}

// Status returns what each pipeline does, in the order of the configuration.
func (e *Engine) Status() (all []admin.Status) {
	for _, p := range e.pipelines() {
		all = append(all, admin.StatusOf(p))
	}
	return all
}

// Admin returns the operations on the engine's dead letters, positions and pauses, which
// its socket serves to other processes. It must not be used after Close.
func (e *Engine) Admin() *admin.Admin {
	return admin.New(e.data, e.deadLetters, e.adminPipelines, e.opts.LogLevel)
}

// Log returns the engine's log, which also keeps what Host.Recent returns.
func (e *Engine) Log() *slog.Logger { return e.log }

// Config returns the configuration in effect. It must not be changed.
func (e *Engine) Config() *config.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.config
}

// Address returns the address of the HTTP port with the number that the system chose,
// or "" if there is no port.
func (e *Engine) Address() string {
	if e.server.Address() == nil {
		return ""
	}
	return e.server.Address().String()
}

func (e *Engine) pipelines() (all []*pipeline.Pipeline) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runners {
		all = append(all, r.pipeline)
	}
	return all
}

func (e *Engine) names() (names []string) {
	for _, p := range e.pipelines() {
		names = append(names, p.Name())
	}
	return names
}

func (e *Engine) adminPipelines() (all []admin.Pipeline) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runners {
		p := r.parts.admin()
		p.Running = r.pipeline
		all = append(all, p)
	}
	return all
}

// pools returns the pools of all scripts.
func (e *Engine) pools() []*pool.Pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []*pool.Pool{e.shared.pool}
	for _, r := range e.runners {
		for _, own := range []*pool.Pool{r.parts.pool, r.parts.beside} {
			if own != nil {
				all = append(all, own)
			}
		}
	}
	return all
}

// A watch looks for new versions of scripts until it is stopped.
type watch struct {
	watcher *reload.Watcher
	stop    context.CancelFunc
	stopped chan struct{}
}

// startWatch watches the scripts in effect.
func (e *Engine) startWatch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	var scripts []*reload.Script
	for _, r := range e.runners {
		if s, ok := r.parts.Script.(*reload.Script); ok {
			scripts = append(scripts, s)
		}
	}
	for _, f := range e.functions {
		if s, ok := f.Script.(*reload.Script); ok {
			scripts = append(scripts, s)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{reload.NewWatcher(scripts, e.config.Reload), stop, make(chan struct{})}
	e.watch = w
	go func() {
		defer close(w.stopped)
		w.watcher.Run(ctx)
	}()
}

func (e *Engine) stopWatch() {
	e.mu.Lock()
	w := e.watch
	e.watch = nil
	e.mu.Unlock()
	if w != nil {
		w.stop()
		<-w.stopped
	}
}
