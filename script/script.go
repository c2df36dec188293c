// Package script is the contract of the user code that runs on every event, between
// source and sink. Each language has a folder below; scripttest is the conformance suite
// that every engine passes.
//
// A language builds its results with a ResultBuilder. Callers run whole batches with
// RunAll.
package script

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/pool"
)

// A Script is loaded user code. It is safe for concurrent use.
type Script interface {
	// Run passes every event of in through the script and fills res. The caller owns
	// both; Run resets res first and keeps neither. len(res.Outputs) must be
	// Options.Outputs.
	//
	// An event that fails becomes a dead letter in res and does not fail the batch. A
	// row that does not fit the columns of a sink becomes a dead letter for this sink
	// and goes to the others. When a limit of the batch ends the run early, the error
	// is a *LimitError, res holds the results of the events before, and res.Ran is
	// their number, at least one; see RunAll. After any other error, res is empty.
	Run(ctx context.Context, in *event.Batch, res *event.Result) error

	// String returns the script's name and version, as dead letters quote it.
	String() string

	Close() error
}

// A RowScript is a Script that can go on from rows that its code returned earlier. Scripts that are
// loaded with an Extension are RowScripts.
type RowScript interface {
	Script
	// FinishRows is Run without the code: it computes the columns of rows and fills those of
	// sinks. Row i belongs to the event rows.From[i] of in, which is ascending, and goes to the
	// sinks rows.To[i]; see Options.Route. It keeps neither in nor rows.
	FinishRows(ctx context.Context, in *event.Batch, rows *event.Output, res *event.Result) error
}

// Code is the text of a script.
type Code struct {
	Name string // file name or URI, as errors quote it
	Text []byte
	Func string // function to call; empty for the language's default
	// Files reads a file that the code requires, by its path with slashes, relative to
	// the code's folder, or returns nil and an error. It is nil if there are no files; see
	// Folder.
	Files func(path string) ([]byte, error)
	// File is a copy of the text in a file that nobody changes, for code that is loaded from a
	// file: see Language.FromFile. Text is empty then. It may be empty.
	File string
}

// Options are what a script is loaded with.
type Options struct {
	Limits Limits
	// Sinks are the sinks of the rows: at most SinksMax, and at least one not Routed.
	Sinks []Sink
	// SingleOutput asks for one output with all rows, and with their sinks in To, in place of
	// one output per sink. The sinks must have no columns then.
	SingleOutput bool
	Log          *slog.Logger
	// Modules are the modules that the code can require besides the standard ones.
	Modules []Module
	// Stats collects the measurements of the code; nil drops them.
	Stats *Stats
	// Extension adds modules that are in C, such as those of the node database; see package
	// nodedb/lua. Engines without LuaJIT refuse it.
	Extension Extension
	// Timer says that the code must define the function timer, which runs on due timers; see
	// event.Batch.Timers. Code that requires the module timer must define it anyway.
	Timer bool
	// Pool holds the VMs of the code. It may be shared; nil means an adaptive pool of its
	// own.
	Pool *pool.Pool
	// Current is where an engine that can stores the index in the batch of the event that
	// it begins, for a process that looks for the event that ended this one. It may be nil.
	Current *atomic.Uint32
	// Isolated says that the code runs in a process of its own, whose limits hold for
	// every language.
	Isolated bool
	// ReturnsValue makes the value that the function returns the one row of its event, null if
	// it returns none. The sinks must have no columns then.
	ReturnsValue bool
	// Trial makes runs repeatable, for tests; nil in a pipeline.
	Trial *Trial
}

// An Extension adds modules whose functions are in C to a script on LuaJIT. It is safe for
// concurrent use. Two scripts with equal extensions may share VMs.
type Extension interface {
	// Modules returns the names for require.
	Modules() []string
	// Source returns Lua that makes the modules, see internal/luajit.
	Source() string
	// Open returns what LuaJIT's engine needs of one VM's modules, and what it calls when it has
	// closed them.
	Open() (native unsafe.Pointer, release func(), err error)
}

// Limits bound what a script can use. A zero field means the default.
type Limits struct {
	EventTime time.Duration // for one event; default 100 ms
	BatchTime time.Duration // for a batch; default 2 s
	// WallTime is for one event by the clock, with what it waits for functions of Go. The
	// default is WallFactor times EventTime.
	WallTime time.Duration
	Memory   int // bytes a VM may hold; default 64 MiB
	Output   int // bytes of output for one batch; default 64 MiB
}

// WallFactor is how many times its time a script may take by the clock, by default.
const WallFactor = 10

// WithDefaults returns the limits with defaults in place of zero fields.
func (l Limits) WithDefaults() Limits {
	if l.EventTime == 0 {
		l.EventTime = 100 * time.Millisecond
	}
	if l.BatchTime == 0 {
		l.BatchTime = 2 * time.Second
	}
	if l.WallTime == 0 {
		l.WallTime = WallFactor * l.EventTime
	}
	if l.Memory == 0 {
		l.Memory = defaultMemory
	}
	if l.Output == 0 {
		l.Output = 64 << 20
	}
	return l
}

// An Error is a fault in a script, at load time or in one event.
type Error struct {
	Script    string // as Code.Name
	Line      int    // 0 when there is none
	Column    int    // 0 when there is none
	Message   string
	Hint      string
	Traceback string
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.Script, e.Message)
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %s", e.Script, e.Line, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Script, e.Line, e.Column, e.Message)
}

// ErrorHint implements event.Hinter.
func (e *Error) ErrorHint() string { return e.Hint }

// A LimitError says that a run hit a limit of the batch, and not of one event.
type LimitError struct {
	Limit string // "batch time", "output"
	Err   *Error // where the script was
}

func (e *LimitError) Error() string { return fmt.Sprintf("%s limit: %v", e.Limit, e.Err) }

// A Language is a kind of engine that configurations can choose.
type Language struct {
	Name string
	Doc  string
	// Load compiles and checks the code; a fault in it is an *Error.
	Load func(ctx context.Context, code Code, opts Options) (Script, error)

	// FromFile says that Load opens the code as a file, as the system's loader does. Code of other
	// languages is loaded from its text, without opening files.
	FromFile bool

	// Check returns mistakes that Load does not find, in code that loads: names of sinks
	// that do not exist, variables that are never set. nil means that it finds none.
	Check func(code Code, opts Options) []*Error
}
