// Package source is the contract of the places events come from. Each kind is a
// folder below; sourcetest is the suite that every kind passes.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/perigeedb/perigee/event"
)

// ErrMoved says that a partition is no longer what its name says: its past
// changed, or it is gone. The pipeline asks for the partitions again.
var ErrMoved = errors.New("source: the partition has changed its identity")

// A PermanentError will not pass with time; a person must act. Hint says how.
// It stops the pipeline. Any other error of a source, except ErrMoved and
// io.EOF, passes with time: the caller comes again.
type PermanentError struct {
	Err  error
	Hint string
}

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// A Source is a place where events wait, in one or more partitions. It is safe
// for concurrent use.
type Source interface {
	// Partitions names the partitions there are now. A name holds the identity
	// of what it names (a list and its generation, a file and its inode), so
	// that equal names always mean equal positions. It is asked again from time to
	// time while the pipeline runs, about every second: partitions come and go.
	// One that is at work when it is no longer named works on until its reader
	// ends it. When all that are named have ended, the pipeline ends, unless the
	// source is Growing. A place that is not there yet is waited for, for as long
	// as ctx allows, or an error.
	Partitions(ctx context.Context) ([]string, error)

	// Open starts reading a partition. done is what every sink already has: the
	// reader skips it, after it has made sure by the fingerprints that the
	// positions still mean the same events. When they do not, it starts a new
	// identity at the first event that differs and returns ErrMoved. It never
	// skips in silence: a gap between done and what is there is a
	// *PermanentError that names it.
	Open(ctx context.Context, partition string, done event.Ranges) (Reader, error)

	// Close frees what the source holds, after all its readers are closed.
	Close() error
}

// A Reader reads one partition in order. Read is called by one goroutine, Ack
// by others at the same time.
type Reader interface {
	// Read waits for at least one event and fills b, which belongs to the
	// caller. It may run ahead of Ack as far as the caller has batches; what it
	// has read stays in the source until it is acknowledged. io.EOF says that
	// no event will ever follow.
	Read(ctx context.Context, b *event.Batch) error

	// Ack says that r is durable everywhere. Acks come in any order and may be
	// for parts of what was read; the source gives events up only from the front.
	Ack(ctx context.Context, r event.Range) error

	// Close gives up reading. What was read and not acknowledged is read again
	// by the next reader. It first passes on the acknowledgements it was given.
	Close(ctx context.Context) error
}

// Lagger is a Reader that knows how many events wait behind what it has read.
type Lagger interface {
	Lag() uint64
}

// Growing is a Source that may have more partitions later: the pipeline does not
// end when all there are have ended.
type Growing interface {
	Grows() bool
}

// Local is a Source some of whose partitions no other engine can see: nobody
// leases them.
type Local interface {
	Local(partition string) bool
}

// A Bounded is a Source that can tell what its partitions hold.
type Bounded interface {
	// Bounds returns the positions that each partition has now: from the first that
	// was not given up to the end. Not every position between has an event. It
	// changes nothing, and may take a while.
	Bounds(ctx context.Context) (map[string]event.Range, error)
}

// A Checker is a Source that can be tried without reading: server, credentials,
// the list or topic. A fault is a *PermanentError where a person must act. It
// changes nothing.
type Checker interface {
	Check(ctx context.Context) error
}

// A Guarantee is what a kind of source promises when a process is killed.
type Guarantee string

const (
	// ExactlyOnce with a sink that is so too: events stay until they are acknowledged.
	ExactlyOnce Guarantee = "exactly once"
	// AtMostOnce loses what was in flight.
	AtMostOnce Guarantee = "at most once"
)

// Lossy is a Source that may promise less than exactly once, as it is set up.
type Lossy interface {
	Guarantee() (g Guarantee, why string)
}

// A Kind is how a kind of source is offered to configurations.
type Kind struct {
	Name string // the key in the configuration
	Doc  string // one sentence, for help and the reference
	// Config is a pointer to a zero config struct; the reference is printed from it.
	Config any
	// New decodes the settings below the key and makes a source. It does not
	// connect: check calls it where no server is.
	New func(env Env, decode func(any) error) (Source, error)
}

// Env is what a source is told besides its own settings.
type Env struct {
	Pipeline string // name of the pipeline
	Folder   string // the folder of the configuration file: relative paths start here
	Data     string // the engine's data folder
	// Remembered says that a sink of the pipeline remembers ranges. Without it
	// what is given to Open as done is always empty and proves nothing, so a
	// source cannot notice that a sink has lost what was acknowledged.
	Remembered bool
	Log        *slog.Logger
	Limits     Limits
}

// SetPosition is the command by which a person has a pipeline go on from another
// position of a partition, for hints.
func SetPosition(pipeline, partition string, next uint64) string {
	return fmt.Sprintf("perigee position set CONFIG %s %d --partition '%s'", pipeline, next, partition)
}

// Limits bound a batch. A single event larger than Bytes makes a batch of its own.
type Limits struct {
	Events int
	Bytes  int
}
