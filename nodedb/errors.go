package nodedb

import "fmt"

// Errors that callers decide on. What this package returns wraps one of them, so compare with
// errors.Is.
var (
	ErrUnavailable         = newSentinel("nodedb: this build has no node database", `build with "make build" in a clone of the repository: it needs cgo and the build tag lmdb`)
	ErrClosed              = newSentinel("nodedb: closed", "")
	ErrReadOnly            = newSentinel("nodedb: read-only", "")
	ErrArgument            = newSentinel("nodedb: invalid argument", "")
	ErrPathTooLong         = newSentinel("nodedb: path too long", "")
	ErrValueTooLong        = newSentinel("nodedb: value too long", "")
	ErrTransactionTooLarge = newSentinel("nodedb: transaction too large", "split the work into several transactions, or raise Options.TransactionBytes")
	// ErrConflict says that another transaction changed what this one read. Update runs the
	// function again, also if the function returns this error.
	ErrConflict = newSentinel("nodedb: conflict with another transaction", "")
	ErrTimeout  = newSentinel("nodedb: lock not free in time", "")
	// ErrLevel says that no transaction is open, or that an inner one still is.
	ErrLevel = newSentinel("nodedb: wrong transaction level", "")
	// ErrDisk says that the disk is full or that a write failed. If the Error has a Commit, the
	// transaction is committed and visible to this process, which tries again to write it until it
	// ends: see Store.Wait. So are the changes for which a failed Sync waited. Any other operation has
	// done nothing.
	ErrDisk    = newSentinel("nodedb: write failed", "free space on the disk of the folder; changes that wait are written as soon as there is room")
	ErrCorrupt = newSentinel("nodedb: corrupt", `"perigee node check" lists the faults; "perigee node restore" makes a store of a backup`)
	ErrMemory  = newSentinel("nodedb: out of memory", "")
	// ErrSuperseded says that this process was suspended for so long that another took over
	// its right to write; changes that were not yet durable are lost, as after a crash.
	ErrSuperseded   = newSentinel("nodedb: another process took over", "")
	ErrMerge        = newSentinel("nodedb: source and target of a merge overlap", "")
	ErrNumberRange  = newSentinel("nodedb: number out of range", "")
	ErrTooManyLocks = newSentinel("nodedb: too many locks", "unlock nodes that are no longer needed, or lock one ancestor in place of many nodes")
)

// A sentinel is one of the errors above, with what to do about it.
type sentinel struct{ text, hint string }

func newSentinel(text, hint string) error { return &sentinel{text, hint} }

func (s *sentinel) Error() string { return s.text }

// ErrorHint returns what to do about the error, or "".
func (s *sentinel) ErrorHint() string { return s.hint }

// An Error says what failed, and where.
type Error struct {
	Op   string // as in "set"
	Path Path   // zero where the operation has none
	Err  error  // one of the errors of this package
	// Commit is the number of a transaction that is committed and not yet durable, for Store.Wait;
	// 0: there is none.
	Commit uint64

	message string // of the core: a sentence
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
