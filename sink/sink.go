// Package sink is the contract between the pipeline and the places that events go
// to. Each kind of sink is a folder below this one. Package sinktest is the suite
// that every kind passes.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/event"
)

// ErrFenced says that another owner has taken over the partition. The writer will
// never commit again: the pipeline closes it, and opens the partition again unless
// another worker has its lease.
var ErrFenced = errors.New("sink: another worker has taken over the partition")

// ErrConflict says that a transaction lost against another one, as in a deadlock, and
// that nothing of it was committed. The pipeline retries after milliseconds rather
// than with its usual backoff. Errors wrap it.
var ErrConflict = errors.New("sink: the transaction lost against another one")

// A Sink is a place that events go to. Its methods may be called by several
// goroutines at the same time.
//
// The pipeline stops at an *event.PermanentError. It retries after any other error
// except ErrFenced and *RowErrors, with growing waits; after ErrConflict, sooner.
type Sink interface {
	// Open takes over the partition: from here on its previous owner can commit
	// nothing. It returns the ranges that are already committed. A sink that delivers
	// at least once returns none.
	Open(ctx context.Context, partition string) (Writer, event.Ranges, error)

	// Traits says what else the sink can do. The answer is the same for the life of
	// the sink, and does not need a connection.
	Traits() Traits

	// Close releases what the sink holds. It is called once, after all writers are
	// closed.
	Close() error
}

// A Writer writes the outputs of one partition.
type Writer interface {
	// Write commits the rows of out and its range in one transaction, or neither. It
	// skips rows from positions that are already committed. An output without rows
	// still commits its range. The caller owns out: the writer keeps no reference to it.
	//
	// If the sink's Order is AnyOrder, several goroutines call Write at the same time,
	// each with its own output. Otherwise one call ends before the next begins.
	//
	// *RowErrors names the rows that can never be written. Nothing was committed, and
	// the pipeline calls Write again without these rows; a sink that delivers at least
	// once has recorded which of the others it wrote. After any other error that is
	// not permanent the pipeline calls Write again with the same output: Write must
	// then find out whether the previous attempt was committed.
	Write(ctx context.Context, out *event.Output) error

	// Verify finds out, without writing, whether the sink still has what this writer
	// committed. The pipeline calls it from time to time, also during Write. An
	// *event.PermanentError names what was committed and is missing, as after a
	// restored backup. ErrFenced says that the partition has another owner. The
	// pipeline ignores any other error. A writer that cannot tell returns nil.
	Verify(ctx context.Context) error

	// Close releases the resources of the writer. Uncommitted rows are lost.
	Close() error
}

// Traits describe a sink. The zero value is right for every sink: it gets documents,
// one output at a time, in the order of the source.
type Traits struct {
	// Columns are the fields that the sink wants as typed columns, besides the
	// documents. Empty means that it wants documents only.
	Columns []event.Column

	// ColumnsOnly says that the sink reads columns and no documents: the documents of
	// its outputs may be empty.
	ColumnsOnly bool

	// Order says in which order the outputs of a partition must arrive.
	Order Order

	// Leases lets several workers share the partitions of a pipeline through the sink.
	// nil means that it keeps no leases.
	Leases LeaseStore

	// Positions lets a person see and move what the sink has committed. nil means that
	// it remembers no positions.
	Positions PositionStore

	// Units lets the sink be the home of a pipeline's state. Its writers are NoteWriters then.
	// nil means that it cannot.
	Units UnitStore

	// Check connects and looks for faults that would stop a writer: the server, the
	// credentials and grants, the table. It changes nothing. It returns an
	// *event.PermanentError for what a person must fix. nil means that the sink cannot
	// be checked without writing.
	Check func(ctx context.Context) error

	// Tables lists the tables that the sink creates in the user's database where they do
	// not exist. It changes nothing. nil means that it creates none.
	Tables func(ctx context.Context) ([]Table, error)
}

// A Table is one that a sink creates in the user's database.
type Table struct {
	Name   string
	Exists bool
}

// An Order says in which order the outputs of a partition are written.
type Order uint8

const (
	// SourceOrder is for a sink whose readers see the order of commits, such as a file
	// or a topic. Outputs are written one at a time, in the order of their ranges. A
	// configuration may give that up for speed.
	SourceOrder Order = iota
	// StrictOrder is SourceOrder that a configuration cannot give up, because a later
	// row replaces an earlier one.
	StrictOrder
	// AnyOrder is for a sink whose readers see no order, such as a SQL table. Several
	// outputs are written at the same time.
	AnyOrder
)

// ParseOrder reads a sink's setting "order": source, the default, or any.
func ParseOrder(setting string) (Order, error) {
	switch setting {
	case "", "source":
		return SourceOrder, nil
	case "any":
		return AnyOrder, nil
	}
	return 0, fmt.Errorf("unknown order %q: use source or any", setting)
}

// A LeaseStore keeps leases beside a sink's ranges, so that several workers share the
// partitions of a pipeline. Times are those of the place that keeps the leases:
// workers need not agree on the time. A lease says which worker should work. Only
// Sink.Open, which fences, guarantees that no other does.
type LeaseStore interface {
	// AcquireLeases gives worker the lease of each partition for d from now, or renews
	// it, unless another worker holds a lease that has not expired. It returns the worker
	// that holds each lease now. With an error, holders has those that are known, and ""
	// for the others. A worker may have thousands of leases: a store renews many with
	// one statement.
	AcquireLeases(ctx context.Context, partitions []string, worker string, d time.Duration) (holders []string, err error)

	// ReleaseLeases ends worker's leases of the partitions, as far as it has them.
	ReleaseLeases(ctx context.Context, partitions []string, worker string) error

	// Heartbeat says that worker works for the pipeline, for d from now. It returns
	// how many workers do, worker among them. A d of 0 withdraws worker.
	Heartbeat(ctx context.Context, worker string, d time.Duration) (workers int, err error)
}

// A PositionStore shows and changes the positions that a sink remembers.
type PositionStore interface {
	// Positions returns the committed ranges of each partition of the sink's pipeline.
	Positions(ctx context.Context) (map[string]event.Ranges, error)

	// SetPosition makes the sink forget what it committed at next and after, and
	// count everything before next as committed. It fences the partition's writer.
	SetPosition(ctx context.Context, partition string, next uint64) error
}

// RowErrors names the rows of an output that the sink rejects.
type RowErrors struct {
	Rows []RowError // ascending by Row
}

// A RowError is one row that can never be written.
type RowError struct {
	Row   int    // index in the output
	Stage string // of the dead letter: StageColumn, or "" for StageSink
	Err   error
}

// The stages of dead letters that sinks reject.
const (
	StageSink   = "sink"   // the sink rejects the row
	StageColumn = "column" // a value does not fit its column, or a required one is missing
)

func (e *RowErrors) Error() string {
	if len(e.Rows) == 1 {
		return fmt.Sprintf("row %d rejected: %v", e.Rows[0].Row, e.Rows[0].Err)
	}
	return fmt.Sprintf("%d rows rejected, the first is row %d: %v", len(e.Rows), e.Rows[0].Row, e.Rows[0].Err)
}

// A Guarantee is what a kind of sink promises when a process is killed.
type Guarantee string

const (
	ExactlyOnce Guarantee = "exactly once"
	AtLeastOnce Guarantee = "at least once"
)

// A Kind is how configurations name a kind of sink.
type Kind struct {
	Name      string // the key in the configuration
	Doc       string // one sentence, for help and the reference
	Guarantee Guarantee
	// Place names what the sink writes to within its server. nil means that no setting does.
	Place *Place
	// Config is a pointer to a zero config struct, from which the reference is printed.
	Config any
	// New decodes the settings below the key and makes a sink. It does not connect:
	// "perigee check" calls it where no server runs.
	New func(env Env, decode func(any) error) (Sink, error)
}

// A Place is the setting that names what a kind of sink writes to within its server, such as a
// table: a replay writes to another one.
type Place struct {
	// Keys are the settings; a configuration has one of them. None means that the sink keeps
	// nothing, so that no other place is needed, such as for standard output.
	Keys []string
	// Identity returns what is equal for all spellings of a place. It connects to no server, so
	// it may be equal for different places, but never differs for one. With an error about the
	// spelling it still returns the identity.
	Identity func(env Env, value string) (string, error)
}

// Env is what a sink is told besides its own settings.
type Env struct {
	Pipeline string // name of the pipeline, under which the sink keeps ranges
	Folder   string // the configuration file's folder, which relative paths start from
	Data     string // the engine's data folder
	// State says that the sink may become the home of the pipeline's state: Check and Tables then
	// include what its units need.
	State bool
	Log   *slog.Logger
}
