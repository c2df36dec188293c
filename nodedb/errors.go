package nodedb

import "fmt"

// Errors of this package. Every error that it returns wraps one of them; test with errors.Is.
var (
	ErrUnavailable         = newSentinel("nodedb: this build has no node database", `build with "make build" in a clone of the repository: it needs cgo and the build tag lmdb`)
	ErrClosed              = newSentinel("nodedb: closed", "")
	ErrReadOnly            = newSentinel("nodedb: read-only", "")
	ErrArgument            = newSentinel("nodedb: invalid argument", "")
	ErrPathTooLong         = newSentinel("nodedb: path too long", "")
	ErrValueTooLong        = newSentinel("nodedb: value too long", "")
	ErrTransactionTooLarge = newSentinel("nodedb: transaction too large", "split the work into several transactions, or raise Options.TransactionBytes")
	// ErrConflict means that another transaction changed nodes that this one read. Update runs its
	// function again, also if the function itself returns this error.
	ErrConflict = newSentinel("nodedb: conflict with another transaction", "")
	ErrTimeout  = newSentinel("nodedb: lock not free in time", "")
	// ErrLevel means that no transaction is open, or that an inner one still is.
	ErrLevel = newSentinel("nodedb: wrong transaction level", "")
	// ErrDisk means that the disk is full or a write failed. If the Error has a Commit, the
	// transaction is committed and visible to this process, which retries the write until it ends:
	// see Store.Wait. The same is true of the changes that a failed Sync waited for. Any other
	// operation that fails with ErrDisk has no effect.
	ErrDisk    = newSentinel("nodedb: write failed", "free space on the disk of the folder; pending changes are then written")
	ErrCorrupt = newSentinel("nodedb: corrupt", `list the faults with "perigee node check"; restore a backup with "perigee node restore"`)
	ErrMemory  = newSentinel("nodedb: out of memory", "")
	// ErrSuperseded means that this process was suspended for so long that another process took
	// over the right to write. Changes that were not yet durable are lost, as after a crash.
	ErrSuperseded  = newSentinel("nodedb: another process took over", "")
	ErrMerge       = newSentinel("nodedb: source and target of a merge overlap", "")
	ErrNumberRange = newSentinel("nodedb: number out of range", "")
	// ErrInUse means that the folder of a unit is open already, in this process or another.
	ErrInUse = newSentinel("nodedb: already open", "")
	// ErrIncomplete means that the folder of a unit may have parts of deltas. Apply them again, in
	// order, up to begun of Positions.
	ErrIncomplete = newSentinel("nodedb: deltas are missing", "")
	// ErrNewer means that a later version has written the folder or the delta. They are unchanged.
	ErrNewer        = newSentinel("nodedb: written by a later version", "use the version of perigee that wrote it, or a later one")
	ErrTooManyLocks = newSentinel("nodedb: too many locks", "unlock nodes that are no longer needed, or lock one ancestor in place of many nodes")
)

// A sentinel is one of the errors above, with a hint on how to resolve it.
type sentinel struct{ text, hint string }

func newSentinel(text, hint string) error { return &sentinel{text, hint} }

func (s *sentinel) Error() string { return s.text }

// ErrorHint returns how to resolve the error, or "".
func (s *sentinel) ErrorHint() string { return s.hint }

// An Error describes a failed operation.
type Error struct {
	Op   string // such as "set"
	Path Path   // the node; zero if the operation has none
	Err  error  // one of the errors of this package
	// Commit is the number of a transaction that is committed but not yet durable, for Store.Wait.
	// 0 means none.
	Commit uint64

	message string // a sentence from the core
}

func (e *Error) Error() string {
	text := "node database: " + e.Op
	if e.Path != (Path{}) {
		text += " " + e.Path.String()
	}
	if e.message != "" {
		return text + ": " + e.message
	}
	return fmt.Sprintf("%s: %v", text, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// invalid returns an ErrArgument.
func invalid(op, format string, args ...any) error {
	return &Error{Op: op, Err: ErrArgument, message: fmt.Sprintf(format, args...)}
}
