// Package pipeline joins a source, a script and sinks: it reads batches, runs
// the script on them, keeps dead letters, writes the rows and acknowledges.
//
// Each partition of the source has one reader and a fixed number of lanes. A
// lane carries one batch at a time through
//
//	script → dead letters → outbox → sinks (rows and range in one transaction) → ack
//
// and lanes commit in any order. Whatever is interrupted anywhere before the
// ack is read again, and the sinks skip what they already have, so a kill at
// any point loses nothing and doubles nothing where the sink gives exactly
// once. Dead letters are replaced for the whole range before the rows are
// written, so that they are always those of the run that was committed. They are
// the engine's own: of two engines that take a partition from each other, both
// may keep the letter of an event that one of them has committed.
//
// With several sinks, what came of a batch is in the outbox before the first of
// them is written: after a crash the stored outputs go to the sinks that lack
// them, and the script does not run again. Sinks that do not remember ranges
// are written first, so that whatever another sink remembers, they have.
//
// Where one of the sinks keeps leases, the workers of a pipeline share its
// partitions: each works on those that it holds the lease of, gives up what is
// more than its fair share, and takes over what ran out. A worker that cannot
// renew a lease stops before it is over. It is not the lease that keeps two
// workers from writing the same event but Sink.Open, which fences.
//
// Batches and results are reused: memory is bounded by lanes and the limits of
// a batch, whatever the speed of a source or the absence of a sink. A source,
// a script or a sink that panics fails the pipeline with an error.
//
// The package knows contracts and no kinds. A Pipeline is safe for concurrent
// use, except that Run is called once.
package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/pipeline/outbox"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

const (
	// DefaultLanes is the number of batches of a partition in flight.
	DefaultLanes = 4
	// DefaultLease is how long a worker that says nothing keeps its partitions.
	DefaultLease = 10 * time.Second
)

// Config is what a pipeline is made of. The pipeline closes the readers and
// writers that it opens; source, script and sinks belong to the caller, who
// closes them after Run has returned.
type Config struct {
	Name        string
	Source      source.Source
	Script      script.Script // loaded for exactly these sinks
	Sinks       []Sink
	DeadLetters DeadLetters
	// Outbox is for a pipeline with several sinks, and for one that has had
	// several: what it still holds is written. nil means none.
	Outbox *outbox.Store
	Lanes  int           // batches of a partition in flight; 0 means DefaultLanes
	Limits source.Limits // of a batch, as the source was told
	// Worker names this process among those that share the pipeline's
	// partitions, the same one each time it starts (see Worker); "" is one that
	// nobody has.
	Worker string
	Lease  time.Duration // how long leases last; 0 means DefaultLease
	Folder string        // where the pipeline remembers that it is paused; "" means nowhere
	Log    *slog.Logger
	// Reached is called at each Point that a batch passes, for tests that stop
	// the process there. nil means nobody wants to know.
	Reached func(Point)
}

// A Sink is one of a pipeline's sinks and the name it has in the configuration.
type Sink struct {
	Name      string
	Sink      sink.Sink
	Guarantee sink.Guarantee // of its kind; "" means that it remembers ranges if it returns any
}

// DeadLetters keeps the events that could not be processed. It is safe for
// concurrent use; package deadletter has the one that a running engine uses.
type DeadLetters interface {
	// Replace durably makes dead the only entries for the positions of r.
	Replace(pipeline, partition string, r event.Range, dead []event.Dead) error
}

// A Pipeline moves events from one source through one script to its sinks.
type Pipeline struct {
	config   Config
	log      *slog.Logger
	status   status
	gate     *gate
	counters counters
	circuit  circuit
	tenancy  tenancy

	source  *trouble   // with reading and acknowledging
	sinks   []*trouble // with each of config.Sinks
	letters *trouble   // with keeping dead letters
	outbox  *trouble   // with storing outputs
	leases  *trouble   // with asking for leases; nil where there are none
	deaths  deaths
	order   []int // of writing to config.Sinks
}

// New makes a pipeline and connects to nothing.
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
	if c.Reached == nil {
		c.Reached = func(Point) {}
	}
	p := &Pipeline{config: c, log: c.Log.With("pipeline", c.Name), gate: newGate()}
	p.source = p.newTrouble("source", nil)
	p.letters = p.newTrouble("dead letters", &p.circuit)
	p.outbox = p.newTrouble("outbox", &p.circuit)
	if i := leaserIn(c.Sinks); i >= 0 {
		p.leases = p.newTrouble("leases at sink "+c.Sinks[i].Name, nil)
	}
	for _, s := range c.Sinks {
		p.sinks = append(p.sinks, p.newTrouble("sink "+s.Name, &p.circuit))
	}
	p.counters.sinks = make([]sinkCounters, len(c.Sinks))
	p.order = writingOrder(c.Sinks)
	return p
}

// writingOrder puts the sinks that remember nothing before the others.
func writingOrder(sinks []Sink) (order []int) {
	for _, forgetful := range []bool{true, false} {
		for i, s := range sinks {
			if s.forgets() == forgetful {
				order = append(order, i)
			}
		}
	}
	return order
}

func (s *Sink) forgets() bool { return s.Guarantee == sink.AtLeastOnce }

// Name is the pipeline's name in the configuration.
func (p *Pipeline) Name() string { return p.config.Name }

// Drain stops reading. What is in flight is finished and acknowledged, then Run
// returns. It does not wait, and may be called at any time and more than once.
func (p *Pipeline) Drain() {
	p.status.drain()
	p.gate.drain()
}

// Run moves events until the source is exhausted or, after Drain, until all that
// was read is settled: then it returns nil. While the pipeline is paused it waits
// for Resume. When ctx ends it stops at once and returns ctx's error; what was in
// flight is read again by the next Run. Any other error is one that time does not
// mend; an *event.PermanentError in its chain has a hint for a person.
func (p *Pipeline) Run(ctx context.Context) error {
	err := guard(func() error { return p.run(ctx) })
	if err != nil {
		err = fmt.Errorf("pipeline %s: %w", p.config.Name, err)
	}
	p.status.stop(err)
	return err
}

func (p *Pipeline) run(ctx context.Context) error {
	if err := p.recall(); err != nil {
		return err
	}
	for p.gate.pass(ctx) {
		if over, err := p.shift(ctx); over || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// shift works until the source is exhausted, when all is over, or reading ends
// and what was read is settled.
func (p *Pipeline) shift(ctx context.Context) (over bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	reading, stopReading := p.gate.reading(ctx)
	defer stopReading()
	crew := newCrew(p, ctx, reading)
	leave := crew.join()
	defer func() {
		stop()
		crew.dismiss()
		leave()
	}()
	return crew.work()
}

// partitions asks the source for its partitions until it answers.
func (p *Pipeline) partitions(ctx context.Context) (names []string, err error) {
	err = p.source.retry(ctx, func() (err error) {
		names, err = p.config.Source.Partitions(ctx)
		return err
	})
	return names, err
}

// guard turns a panic in f into an error, so that one pipeline fails and what
// it had in flight is read again, and not the whole engine.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}
