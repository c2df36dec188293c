// Package pipeline joins a source, a script and sinks: it reads batches, runs
// the script on them, keeps dead letters, writes the rows and acknowledges.
//
// Each partition of the source has one reader and a fixed number of lanes. A
// lane carries one batch at a time through
//
//	script → dead letters → sinks (rows and range in one transaction) → ack
//
// and lanes commit in any order. Whatever is interrupted anywhere before the
// ack is read again, and the sinks skip what they already have, so a kill at
// any point loses nothing and doubles nothing where the sink gives exactly
// once. Dead letters are replaced for the whole range before the rows are
// written, so that they are always those of the run that was committed. They are
// the engine's own: of two engines that take a partition from each other, both
// may keep the letter of an event that one of them has committed.
//
// Batches and results are reused: memory is bounded by lanes and the limits of
// a batch, whatever the speed of the source or the absence of a sink. A source,
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

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/source"
)

// DefaultLanes is the number of batches of a partition in flight.
const DefaultLanes = 4

// Config is what a pipeline is made of. The pipeline closes the readers and
// writers that it opens; source, script and sinks belong to the caller, who
// closes them after Run has returned.
type Config struct {
	Name        string
	Source      source.Source
	Script      script.Script // loaded for exactly these sinks
	Sinks       []Sink
	DeadLetters DeadLetters
	Lanes       int           // batches of a partition in flight; 0 means DefaultLanes
	Limits      source.Limits // of a batch, as the source was told
	Log         *slog.Logger
}

// A Sink is one of a pipeline's sinks and the name it has in the configuration.
type Sink struct {
	Name string
	Sink sink.Sink
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
	counters counters

	source  *trouble   // with reading and acknowledging
	sinks   []*trouble // with each of config.Sinks
	letters *trouble   // with keeping dead letters
	deaths  deaths

	draining context.Context
	drain    context.CancelFunc
}

// New makes a pipeline and connects to nothing.
func New(c Config) *Pipeline {
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	p := &Pipeline{config: c, log: c.Log.With("pipeline", c.Name)}
	p.draining, p.drain = context.WithCancel(context.Background())
	p.source = p.newTrouble("source")
	p.letters = p.newTrouble("dead letters")
	for _, s := range c.Sinks {
		p.sinks = append(p.sinks, p.newTrouble("sink "+s.Name))
	}
	p.counters.sinks = make([]sinkCounters, len(c.Sinks))
	return p
}

// Name is the pipeline's name in the configuration.
func (p *Pipeline) Name() string { return p.config.Name }

// Drain stops reading. What is in flight is finished and acknowledged, then Run
// returns. It does not wait, and may be called at any time and more than once.
func (p *Pipeline) Drain() {
	p.status.drain()
	p.drain()
}

// Run moves events until the source is exhausted or, after Drain, until all that
// was read is settled: then it returns nil. When ctx ends it stops at once and
// returns ctx's error; what was in flight is read again by the next Run. Any
// other error is one that time does not mend; a *sink.PermanentError or a
// *source.PermanentError in its chain has a hint for a person.
func (p *Pipeline) Run(ctx context.Context) error {
	err := guard(func() error { return p.run(ctx) })
	if err != nil {
		err = fmt.Errorf("pipeline %s: %w", p.config.Name, err)
	}
	p.status.stop(err)
	return err
}

func (p *Pipeline) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	crew := newCrew(p)
	defer func() { stop(); crew.dismiss() }()
	for {
		names, err := p.partitions(ctx)
		if err != nil {
			return fmt.Errorf("list partitions of source: %w", err)
		}
		crew.hire(ctx, names)
		if again, err := crew.wait(ctx); err != nil || !again {
			return err
		}
	}
}

// partitions asks the source for its partitions until it answers. A drained
// pipeline needs none.
func (p *Pipeline) partitions(ctx context.Context) (names []string, err error) {
	if p.drained(ctx) {
		return nil, nil
	}
	reading, stop := p.reading(ctx)
	defer stop()
	err = p.source.retry(reading, func() (err error) {
		names, err = p.config.Source.Partitions(reading)
		return err
	})
	if err != nil && p.drained(ctx) {
		return nil, nil
	}
	return names, err
}

// reading returns a context that ends with ctx and when the pipeline is drained.
func (p *Pipeline) reading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.draining, cancel)
	return ctx, func() { stop(); cancel() }
}

// drained tells whether it was Drain, and not the end of ctx, that ended reading.
func (p *Pipeline) drained(ctx context.Context) bool {
	return p.draining.Err() != nil && ctx.Err() == nil
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
