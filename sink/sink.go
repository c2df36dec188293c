// Package sink is the contract of the places events end. Each kind is a folder
// below; sinktest is the suite that every kind passes.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/event"
)

// ErrFenced says that another owner has taken the partition over. The writer is
// of no more use, and nothing that it had not committed will ever be.
var ErrFenced = errors.New("sink: another worker has taken over the partition")

// ErrConflict says that an attempt lost against another transaction, as by a
// deadlock, and that nothing of it was committed: the caller comes again almost
// at once. Errors wrap it.
var ErrConflict = errors.New("sink: lost against another transaction")

// A Sink is a place where events end. It is safe for concurrent use.
type Sink interface {
	// Open takes the partition over: whoever had it before can commit nothing
	// from here on. It returns what the sink already has of it. A sink that
	// gives no more than at-least-once returns no ranges.
	Open(ctx context.Context, partition string) (Writer, event.Ranges, error)

	// Close frees what the sink holds, after all its writers are closed.
	Close() error
}

// A Writer writes what came of one partition. Write is called by several
// goroutines at the same time, each with an output of its own.
type Writer interface {
	// Write makes the rows of out and its range durable in one transaction, or
	// neither. Rows from positions that the sink already has are skipped. An
	// output without rows still commits its range. out belongs to the caller
	// again when Write returns.
	//
	// *RowErrors says which rows can never be written; nothing was (a sink at
	// least once remembers what was), and the caller comes again without them. ErrFenced ends the writer. A
	// *PermanentError stops the pipeline. Any other error passes with time
	// (ErrConflict sooner than others): the caller comes again with the same
	// output, and Write must find out whether the attempt before had after all
	// been committed.
	Write(ctx context.Context, out *event.Output) error

	Close() error
}

// A Verifier is a Writer that can find out, without writing, that its place was
// set back to an older state.
type Verifier interface {
	// Verify is called from time to time, also while Write is at work. A
	// *PermanentError names what was committed and is not any more; ErrFenced says
	// that the partition is not the writer's any more. Any other error says nothing.
	Verify(ctx context.Context) error
}

// Columnar is a Sink that wants its rows as typed columns.
type Columnar interface {
	Columns() []event.Column
}

// Bare is a Columnar that may read the columns alone.
type Bare interface {
	// Bare says that the sink reads no documents of an output with columns: they may
	// be empty.
	Bare() bool
}

// Ordered is a Sink that may need its outputs in order, because a later row can
// replace an earlier one.
type Ordered interface {
	// Ordered says that the outputs of a partition must be written one at a time,
	// in the order of their ranges.
	Ordered() bool
}

// A Leaser is a Sink beside whose ranges leases stand, so that several workers
// share the partitions of a pipeline without overlap. The clock is that of the
// place where the leases stand, so that workers need not agree on the time. A
// lease says who should work; it is Open, which fences, that makes sure.
type Leaser interface {
	// Lease makes or renews worker's lease of the partition, for d from now, when
	// nobody else has one that has not run out. It returns who holds the lease.
	Lease(ctx context.Context, partition, worker string, d time.Duration) (holder string, err error)

	// Release ends worker's lease of the partition, if it has one.
	Release(ctx context.Context, partition, worker string) error

	// Alive says that worker works for the pipeline, for d from now, and returns
	// how many workers do, itself among them. With d of 0 it says goodbye.
	Alive(ctx context.Context, worker string, d time.Duration) (workers int, err error)
}

// A Checker is a Sink that can be tried without writing: server, credentials,
// grants, the table and its engine. A fault is a *PermanentError where a person
// must act. It changes nothing.
type Checker interface {
	Check(ctx context.Context) error
}

// A Keeper is a Sink whose memory of ranges a person can look at and change.
type Keeper interface {
	// Positions returns what the sink has of each partition of its pipeline.
	Positions(ctx context.Context) (map[string]event.Ranges, error)

	// SetPosition makes the sink forget what it has at and past next, and take
	// all before it as had. Whoever has the partition open is fenced.
	SetPosition(ctx context.Context, partition string, next uint64) error
}

// RowErrors names the rows of an output that the sink refuses.
type RowErrors struct {
	Rows []RowError // ascending by Row
}

// A RowError is one row that can never be written.
type RowError struct {
	Row int // index in the output
	Err error
}

func (e *RowErrors) Error() string {
	if len(e.Rows) == 1 {
		return fmt.Sprintf("row %d refused: %v", e.Rows[0].Row, e.Rows[0].Err)
	}
	return fmt.Sprintf("%d rows refused, the first of them row %d: %v", len(e.Rows), e.Rows[0].Row, e.Rows[0].Err)
}

// A PermanentError will not pass with time; a person must act. Hint says how.
type PermanentError struct {
	Err  error
	Hint string
}

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// A Guarantee is what a kind of sink promises when a process is killed.
type Guarantee string

const (
	ExactlyOnce Guarantee = "exactly once"
	AtLeastOnce Guarantee = "at least once"
)

// A Kind is how a kind of sink is offered to configurations.
type Kind struct {
	Name      string // the key in the configuration
	Doc       string // one sentence, for help and the reference
	Guarantee Guarantee
	// Config is a pointer to a zero config struct; the reference is printed from it.
	Config any
	// New decodes the settings below the key and makes a sink. It does not
	// connect: check calls it where no server is.
	New func(env Env, decode func(any) error) (Sink, error)
}

// Env is what a sink is told besides its own settings.
type Env struct {
	Pipeline string // name of the pipeline: ranges are kept under it
	Folder   string // the folder of the configuration file: relative paths start here
	Data     string // the engine's data folder
	Log      *slog.Logger
}
