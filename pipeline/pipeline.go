// Package pipeline joins a source, a script and sinks: it reads batches, runs the
// script on them, stores dead letters, writes rows, and acknowledges.
//
// Each partition of the source has a reader loop and a fixed number of lanes. A
// lane takes one batch at a time through
//
//	script → dead letters → outbox → sinks (rows and range in one transaction) → ack
//
// Lanes commit in any order, unless a sink needs the order of the source: then a
// sequencer makes them commit in that order, while their scripts still run in
// parallel. A batch that is interrupted before the ack is read again, and the
// sinks skip the ranges that they have. Killing the process at any point
// therefore loses nothing, and duplicates nothing in a sink that gives exactly
// once. Dead letters are replaced for the whole range before the rows are
// written, so that they are always those of the run that was committed. They stay
// with the engine: if two engines take a partition from each other, both may keep
// the letter of an event that one of them has committed.
//
// A pipeline with several sinks stores the result of a batch in the outbox before
// it writes the first sink. After a crash the stored outputs go to the sinks that
// lack them, and the script does not run again. Sinks that do not remember ranges
// are written first, so that they have whatever another sink remembers.
//
// A script with a state reads and changes the nodes of a unit. Its deliveries follow one
// another through
//
//	script over the deltas in flight → dead letters → home (rows, range and note) → other sinks → ack
//
// and any error but a retry ends all sessions of the unit and drops its deltas, so that the
// state is always that of the events that the home has. The note has what the other sinks
// get, and no outbox is used. Timers that are due are fed to the pipeline as a partition of
// each unit.
//
// Dead letters whose retry was requested are fed to the pipeline beside the
// source, in batches that the sinks know as partitions.
//
// If one of the sinks keeps leases, several workers share the partitions of a
// pipeline. Each works on those whose lease it holds, gives up more than its fair
// share, and takes over expired leases. A worker that cannot renew a lease stops
// before it expires. Leases only decide who should work; Sink.Open, which fences,
// guarantees that two workers never write the same event.
//
// Batches and results are reused: lanes and the limits of a batch bound memory,
// whatever the speed of the source and the state of the sinks. A panic in a
// source, script or sink fails the pipeline with an error.
//
// The package knows contracts and no kinds. A Pipeline is safe for concurrent
// use, but Run may be called only once.
package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/deadletter"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/pipeline/state"
	"github.com/perigeedb/perigee/pipeline/tap"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/format"
)

const (
	// DefaultLanes is the number of batches of a partition in flight.
	DefaultLanes = 4
	// DefaultLease is how long a lease lasts unless it is renewed.
	DefaultLease = 10 * time.Second
)

// Config holds the parts of a pipeline. The pipeline closes the readers and writers
// that it opens; source, script, sinks and stores belong to the caller, who closes
// them after Run has returned.
type Config struct {
	Name        string
	Source      source.Source
	Script      script.Script // loaded for exactly these sinks
	Sinks       []Sink
	DeadLetters DeadLetters
	// Outbox is needed by a pipeline that has several sinks, or had several: the
	// entries that are left in it are delivered. nil means none.
	Outbox *outbox.Store
	// State is that of the script; nil means none. Its notes are kept by the sink with the index
	// Home, whose ranges alone say what is done.
	State *state.Config
	Home  int
	// Reads are the states of other pipelines that the script reads, in the order in which it was told
	// their names.
	Reads []Read
	// FormerHome is a place besides the sinks that may have a state of the pipeline, which is then
	// refused; nil means none.
	FormerHome *state.Home
	Lanes      int           // batches of a partition in flight; 0 means DefaultLanes
	Limits     source.Limits // of a batch, as the source was told
	// MaxEvent is the size beyond which an event becomes a dead letter that no script sees; 0
	// means no limit.
	MaxEvent int
	// Worker names this process among those that share the pipeline's partitions.
	// It should be the same at every start; see WorkerName. "" means a random name.
	Worker string
	Lease  time.Duration // duration of leases; 0 means DefaultLease
	Folder string        // data folder, to remember a pause; "" means not to
	Log    *slog.Logger
	// Tracer starts the trace of each batch; nil for none. Spans must never wait.
	Tracer trace.Tracer
	// Tap passes samples of the events to readers; nil for none.
	Tap *tap.Hub
	// OnPoint is called at each Point that a batch passes, for tests that stop the
	// process there. It may be nil.
	OnPoint func(Point)
}

// A Sink is one of a pipeline's sinks and its name in the configuration.
type Sink struct {
	Name      string
	Sink      sink.Sink
	Guarantee sink.Guarantee // of its kind; "" means that it remembers ranges if Open returns any
	// WithoutRows says that the script has no output for it: it keeps only ranges and notes.
	// Such sinks are the last ones.
	WithoutRows bool
}

// DeadLetters stores the events that could not be processed, and feeds those back
// whose retry was requested. It must be safe for concurrent use.
// *deadletter.Store implements it.
type DeadLetters interface {
	// Replace durably makes dead the only letters for the positions of r.
	Replace(pipeline, partition string, r event.Range, dead []event.DeadLetter) error

	// MarkCommitted records that r is durable in every sink: its letters can be
	// retried, and the requested retries in r are complete.
	MarkCommitted(pipeline, partition string, r event.Range) error

	// RetryBatch names the batch of requested retries to run, or returns "". It
	// returns the same name until all retries of the batch are complete.
	RetryBatch(pipeline string) (partition string, err error)

	// OpenRetries starts reading a batch of requested retries behind done, the
	// ranges that every sink has.
	OpenRetries(o deadletter.RetryOptions, partition string, done event.Ranges) (*deadletter.RetryReader, error)
}

// A Pipeline moves events from one source through one script to its sinks.
type Pipeline struct {
	config   Config
	log      *slog.Logger
	format   format.Format // of the source
	status   status
	readGate *readGate
	counters counters
	breaker  circuitBreaker
	limits   *limits
	units    *units // nil if the pipeline has no state
	// keySets is what the state was made for; see state.KeySets. Only the listing uses it.
	keySets map[string]int
	// followers are units that other workers own; nil without a state.
	followers *followers

	// One retrier for each dependency, shared by all lanes.
	source      *retrier
	sinks       []*retrier
	deadLetters *retrier
	outbox      *retrier
	leases      *retrier // nil if no sink keeps leases

	deadLetterLog deadLetterLog
	writeOrder    []int // indexes of config.Sinks
}

// New returns a pipeline. It does not connect.
func New(c Config) *Pipeline {
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Worker == "" {
		c.Worker = "worker-" + randomName()
	}
	if c.OnPoint == nil {
		c.OnPoint = func(Point) {}
	}
	p := &Pipeline{config: c, log: c.Log.With("pipeline", c.Name), readGate: newReadGate(), limits: newLimits()}
	if c.Source != nil {
		p.format = c.Source.Traits().Format
	}
	p.source = p.newRetrier("source", nil)
	p.deadLetters = p.newRetrier("dead letters", &p.breaker)
	p.outbox = p.newRetrier("outbox", &p.breaker)
	if keeper := findLeaseStore(c.Sinks); keeper != nil {
		p.leases = p.newRetrier("leases at sink "+keeper.Name, nil)
	}
	for _, s := range c.Sinks {
		p.sinks = append(p.sinks, p.newRetrier("sink "+s.Name, &p.breaker))
	}
	p.counters.sinks = make([]sinkCounters, len(c.Sinks))
	p.writeOrder = orderWrites(c.Sinks)
	if c.State != nil {
		withHooks := *c.State
		withHooks.OnStep = func(at state.Step) { c.OnPoint(Point(at)) }
		p.config.State = &withHooks
		p.units, p.followers = newUnits(p), newFollowers(p)
		p.writeOrder = append(slices.DeleteFunc(p.writeOrder, func(i int) bool { return i == c.Home }), c.Home)
	}
	return p
}

// orderWrites puts the sinks that do not remember ranges before the others.
func orderWrites(sinks []Sink) (order []int) {
	for _, atLeastOnce := range []bool{true, false} {
		for i, s := range sinks {
			if s.isAtLeastOnce() == atLeastOnce {
				order = append(order, i)
			}
		}
	}
	return order
}

func (s *Sink) isAtLeastOnce() bool { return s.Guarantee == sink.AtLeastOnce }

// rowSinks returns the number of sinks that the script has outputs for.
func (p *Pipeline) rowSinks() int {
	n := len(p.config.Sinks)
	for n > 0 && p.config.Sinks[n-1].WithoutRows {
		n--
	}
	return n
}

// Name returns the pipeline's name in the configuration.
func (p *Pipeline) Name() string { return p.config.Name }

// Drain stops reading for good. Run returns once the batches in flight are
// delivered. Drain does not wait, and may be called at any time and repeatedly.
func (p *Pipeline) Drain() {
	p.status.setDraining()
	p.readGate.drain()
}

// Run moves events until the source is exhausted or, after Drain, until everything
// that was read is delivered; then it returns nil. While the pipeline is paused,
// Run waits for Resume. If ctx ends, Run stops at once and returns ctx's error;
// the next Run reads again what was in flight. Any other error is permanent;
// event.HintOf returns its hint.
func (p *Pipeline) Run(ctx context.Context) error {
	err := catchPanic(func() error { return p.run(ctx) })
	if err != nil {
		err = fmt.Errorf("pipeline %s: %w", p.config.Name, err)
	}
	p.status.setStopped(err)
	return err
}

func (p *Pipeline) run(ctx context.Context) error {
	if err := p.restorePause(); err != nil {
		return err
	}
	for p.waitUntilOpen(ctx) {
		if exhausted, err := p.runUntilPause(ctx); exhausted || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// runUntilPause works until the source is exhausted, or until reading stops and
// everything that was read is delivered.
func (p *Pipeline) runUntilPause(ctx context.Context) (exhausted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	reading, stopReading := p.readGate.context(ctx)
	defer stopReading()
	s := newSupervisor(p, ctx, reading)
	releaseLeases := s.startLeases()
	defer func() {
		cancel()
		s.waitForAssignments()
		releaseLeases()
	}()
	return s.run()
}

// catchPanic turns a panic in f into an error. So a panic fails one pipeline and
// not the engine, and its batches are read again.
func catchPanic(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}
