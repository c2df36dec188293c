// Package sqlsink is what the sinks for SQL databases have in common: how they
// configure and check the table that they fill, where they keep positions, owners
// and leases, and how they find the rows that a server rejects.
//
// Four tables beside the target serve all pipelines that write to a database. perigee_owners has a row for each pipeline, target and partition with
// the epoch of its owner; perigee_ranges has the committed ranges, with the
// fingerprints that the source gave them; perigee_leases and perigee_workers say
// who should work. Taking a partition over raises the epoch, commits, and then
// reads the ranges. Each transaction of a writer ends with the statement that
// records its ranges and reads the owner's row under a shared lock, right before
// COMMIT: that statement fails unless the epoch is the writer's own.
//
// Two more tables, which the first unit creates, make the sink the home of the state of
// pipelines. perigee_units has a row for each unit with the epoch of its owner and the number of
// its last note; perigee_notes has the notes. A transaction with a note reads the unit's row
// under an exclusive lock in the statement that inserts the note, which fails unless the
// epoch is the owner's own and the note is the next one.
//
// A Database implements what differs between kinds of servers, and a Dialect how
// they spell it.
package sqlsink

import (
	"context"
	"time"

	"github.com/perigeedb/perigee/event"
)

// The tables that a Store keeps.
const (
	OwnersTable  = "perigee_owners"
	RangesTable  = "perigee_ranges"
	LeasesTable  = "perigee_leases"
	WorkersTable = "perigee_workers"
	UnitsTable   = "perigee_units" // this and the next only where a pipeline has a state
	NotesTable   = "perigee_notes"
)

// A Dialect is how a kind of database spells names, values and statements.
type Dialect struct {
	Quote     func(name string) string // of a table or column
	QuoteText func(text string) string
	Table     func(name string) string // a table beside the target, as statements name it
	Key       func(name string) string // a pipeline's or partition's name as the database can store it
	CheckName func(name string) error  // reports what cannot name a table or column
	SameName  func(a, b string) bool   // reports whether two names are of the same column

	Now              string                         // the database's clock
	Later            func(d time.Duration) string   // Now, and d more
	Age              string                         // whole seconds since the column committed
	FingerprintsHex  string                         // the column prints in hexadecimal, or NULL
	CutFingerprints  string                         // the first 4*%[1]s bytes of prints
	Hex              [2]string                      // around bytes in hexadecimal
	AppendBytes      func(to, b []byte) []byte      // bytes as a value
	ParseBytes       func(b []byte) ([]byte, error) // a value of bytes as Conn.Query returns it; it may overwrite b
	ShareLock        string                         // ends a SELECT that locks its row against changes
	IgnoreDuplicates string                         // ends an INSERT that keeps an existing row; where it is empty, the INSERT fails
	ReplaceRange     string                         // ends an INSERT that replaces an existing row of perigee_ranges

	Type       func(c Column) string // of a column that the sink creates
	Accepts    func(c *TableColumn, t event.Type) bool
	AlterType  func(name, typ string) string // changes the type of a column in an ALTER TABLE
	AlterNull  func(c *TableColumn) string   // lets a column be NULL in an ALTER TABLE
	Create     func(t *Target) []string      // statements that create the target
	StateTable func(name string) []string    // statements that create one of a Store's tables
}

// A Conn is a connection to a database, for one goroutine at a time.
type Conn interface {
	// Query runs a statement and returns its rows as text; a null is nil.
	Query(ctx context.Context, statement string) ([][][]byte, error)

	// Exec runs statements that return nothing, separated by semicolons, in one
	// packet.
	Exec(ctx context.Context, statements string) error
}

// A Database is a server as the sink for its kind uses it.
type Database interface {
	// Connect calls f with a connection that is in no transaction, and rolls back
	// what f leaves open. It may call f again on another connection if it loses the
	// first: f must be idempotent.
	Connect(ctx context.Context, f func(Conn) error) error

	// ConnectOnce is Connect for what must not be sent twice: it never calls f again.
	ConnectOnce(ctx context.Context, f func(Conn) error) error

	// Missing returns those of the named tables beside the target that do not exist.
	Missing(ctx context.Context, c Conn, names []string) ([]string, error)

	// CreateTables runs statements that create tables, and tolerates other workers
	// that do the same.
	CreateTables(ctx context.Context, c Conn, statements []string) error

	// Evict ends the connections that the previous owner of a partition may still use
	// inside transactions. It only saves time: the fence holds without it.
	Evict(ctx context.Context, c Conn, ownerID uint64, previous string) error

	// Classify says what an error of the server means.
	Classify(err error) Outcome

	// IsDuplicate reports whether an INSERT failed because its row exists.
	IsDuplicate(err error) bool

	// Hint says what a person can do about a permanent error.
	Hint(err error) string
}

// An Outcome is what an error means for the transaction that it ended.
type Outcome int

const (
	Unknown    Outcome = iota // it may have been committed
	RolledBack                // it was not committed; a retry may succeed
	Conflict                  // it was not committed: it lost against another transaction
	Rejected                  // it was not committed: the server rejects some of its rows
	Fenced                    // it was not committed: another worker owns the partition
	Permanent                 // it was not committed, and a person must act
)
