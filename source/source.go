// Package source is the contract between the pipeline and the places that events
// come from. Each kind of source is a folder below this one. Package sourcetest is
// the suite that every kind passes.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source/format"
)

// ErrMoved is returned for a partition whose name no longer fits: its history changed, or
// it no longer exists. The pipeline closes the reader and calls
// Partitions again.
var ErrMoved = errors.New("source: the partition changed its identity")

// A Source is a place where events wait, in one or more partitions. Its methods may
// be called by several goroutines at the same time.
//
// The pipeline stops at an *event.PermanentError. It retries after any other error
// except ErrMoved and io.EOF, with growing waits.
type Source interface {
	// Partitions lists the partitions that exist now. A name contains the identity of
	// what it names, such as a list and its generation or a file and its inode, so
	// that equal names always mean equal positions.
	//
	// The pipeline calls it about once a second, because partitions come and go. A
	// partition that is being read when it leaves the list is read until its reader
	// ends. The pipeline ends when every listed partition has ended, unless Traits
	// says that the source is Growing. If the place does not exist yet, Partitions
	// may wait for it until ctx ends, or return an error.
	Partitions(ctx context.Context) ([]string, error)

	// Open starts reading a partition; the pipeline opens it once at a time. done is
	// what every sink has committed of it. The reader skips those positions after it
	// has compared their fingerprints with the events that the source still has. When
	// they differ, Open gives the partition a new identity that starts at the first
	// differing event, and returns ErrMoved. When events between done and the first
	// one that the source still has are missing, Open returns an
	// *event.PermanentError that names them; it never skips them silently.
	Open(ctx context.Context, partition string, done event.Ranges) (Reader, error)

	// Traits says what else the source can do. The answer is the same for the life of
	// the source, and does not need a connection.
	Traits() Traits

	// Close releases what the source holds. It is called once, after all readers are
	// closed.
	Close() error
}

// A Reader reads one partition in order. One goroutine calls Read and Lag; others
// may call Ack at the same time.
type Reader interface {
	// Read waits for at least one event and fills b. The caller owns b and everything
	// in it: the reader keeps no reference. Read may run ahead of Ack as far as the
	// caller has batches; the source keeps what was read until it is acknowledged.
	// io.EOF means that the partition will never have another event.
	Read(ctx context.Context, b *event.Batch) error

	// Lag returns how many events wait behind those that Read returned, or 0 if the
	// source cannot tell.
	Lag() uint64

	// Ack says that every sink has r durably. Calls come in any order, and r need not
	// match a batch. The source removes events only from the front: those before the
	// first position that is not acknowledged.
	Ack(ctx context.Context, r event.Range) error

	// Close stops reading, after it has passed on the acknowledgements so far. The
	// next reader reads again what was not acknowledged.
	Close(ctx context.Context) error
}

// Traits describe a source. The zero value is right for a source whose partitions
// all exist from the start, that other workers can see, and that keeps every event
// until it is acknowledged.
type Traits struct {
	// Growing sources may list more partitions later: the pipeline keeps running when
	// all the listed ones have ended.
	Growing bool

	// Local reports whether only this process can read the partition, such as a file
	// on its disk. Local partitions are read without a lease. nil means that none is.
	Local func(partition string) bool

	// Unit returns the name by which a script's state knows a partition, whatever its
	// generation: all partitions that continue one another have one unit, such as all files
	// that a path has had. The partition is one that Partitions has listed. The name is not
	// empty, and is UTF-8 of at most 1,000 bytes; see UnitName. nil means that the partition's
	// name is its unit.
	Unit func(partition string) string

	// KeySet returns the name of the set of partitions among which events are distributed by key, as
	// are those of a Kafka topic: a partition that is added to the set gets keys that others had.
	// It is empty for a partition whose keys are its own. nil means that all are such.
	KeySet func(partition string) string

	// AtMostOnce says why a killed process loses events that it had read, as the end
	// of a sentence: "XREADGROUP NOACK …". It is empty for a source that keeps events
	// until they are acknowledged.
	AtMostOnce string

	// Format is what the source turns into documents; the zero value if it reads documents.
	Format format.Format

	// Bounds returns, by partition, the positions from the first event that was not
	// removed to the end. Not every position between needs to have an event. It
	// changes nothing and may take seconds. nil means that the source cannot tell.
	Bounds func(ctx context.Context) (map[string]event.Range, error)

	// Peek passes the events that the source has now to visit, also those that a pipeline has
	// read and not acknowledged. It changes nothing, and a pipeline may read the source
	// meanwhile. A batch is valid until visit returns; its partition and range mean nothing.
	// Peek ends with the first error of visit. nil means that reading consumes the events.
	Peek func(ctx context.Context, visit func(*event.Batch) error) error

	// WhyEmpty says why the source lists no partitions, as in "no file matches
	// logs/*.ndjson", for status and the end of a run. It returns "" when there is
	// nothing to explain. nil means that the source never explains it.
	WhyEmpty func() string

	// Check connects and looks for faults that would stop a reader: the server, the
	// credentials, the list or topic. It changes nothing. It returns an
	// *event.PermanentError for what a person must fix. nil means that the source
	// cannot be checked without reading.
	Check func(ctx context.Context) error

	// Offline says that Check needs no server, so that it is part of every check of a
	// configuration. Only what a person must fix counts there.
	Offline bool
}

// An EmptyReason holds why a source lists no partitions, for Traits.WhyEmpty. Its zero
// value holds no reason.
type EmptyReason struct {
	mu     sync.Mutex
	reason string
}

// Set keeps a reason, or none if it is empty. It logs a reason that is new.
func (e *EmptyReason) Set(reason string, log *slog.Logger) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if reason != "" && reason != e.reason && log != nil {
		log.Warn(reason)
	}
	e.reason = reason
}

// Get returns the reason, or "".
func (e *EmptyReason) Get() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason
}

// A Kind is how configurations name a kind of source.
type Kind struct {
	Name string // the key in the configuration
	Doc  string // one sentence, for help and the reference
	// Config is a pointer to a zero config struct, from which the reference is printed.
	Config any
	// New decodes the settings below the key and makes a source. It does not connect:
	// "perigee check" calls it where no server runs.
	New func(env Env, decode func(any) error) (Source, error)
}

// Env is what a source is told besides its own settings.
type Env struct {
	Pipeline string // name of the pipeline
	Folder   string // the configuration file's folder, which relative paths start from
	Data     string // the engine's data folder
	// Remembered is true when at least one sink of the pipeline remembers ranges. If
	// it is false, Open always gets an empty done, which proves nothing: the source
	// cannot notice that a sink lost what was acknowledged.
	Remembered bool
	Log        *slog.Logger
	Limits     Limits
}

// SetPosition returns the shell command that makes a pipeline continue from another
// position of a partition, for hints.
func SetPosition(pipeline, partition string, next uint64) string {
	quoted := "'" + strings.ReplaceAll(partition, "'", `'\''`) + "'"
	return fmt.Sprintf("perigee position set CONFIG %s %d --partition %s", pipeline, next, quoted)
}

// Limits bound a batch. A single event larger than Bytes is a batch of its own.
type Limits struct {
	Events int
	Bytes  int
}
