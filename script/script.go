// Package script is the contract of what happens between source and sink: user
// code that is run on every event. Each language is a folder below; scripttest
// is the suite that every engine passes.
package script

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script/pool"
)

// A Script is loaded user code. It is safe for concurrent use.
type Script interface {
	// Run passes every event of in through the script, in one crossing, and
	// fills res, which belongs to the caller and is reset first. len(res.Outputs)
	// must be the number of sinks the script was loaded for. A failing event is
	// in res.Dead and does not fail the batch; a row that does not fit the columns
	// of a sink is in res.Dead and goes to the other sinks. When a limit of the batch ends
	// the run early, res holds what ran before, res.Ran says how far, and the
	// error is a *LimitError. Any other error is about the engine.
	Run(ctx context.Context, in *event.Batch, res *event.Result) error

	// String is the script's name and version, as dead letters quote it.
	String() string

	Close() error
}

// Code is the text of a script and where it came from.
type Code struct {
	Name string // file name or URI, as errors quote it
	Text []byte
	Func string // the function to call, where the language lets one choose; "" is its default
	// Files reads what the code requires, by a path with slashes from the code's
	// own folder; nil when there is nothing beside it. See Folder.
	Files func(path string) ([]byte, error)
}

// Options are what a script is loaded with.
type Options struct {
	Limits Limits
	// Sinks are what comes of a batch is for, at most SinksMax and one of them not Routed.
	Sinks []Sink
	// Together asks for one output in place of one for each sink: of everything,
	// with the sinks in its To. Sinks want no columns then.
	Together bool
	Log      *slog.Logger
	// Modules are what the code can require besides the standard ones.
	Modules []Module
	// Stats takes what the code measures; nil drops it.
	Stats *Stats
	// Pool keeps the VMs of the code, and those of others; nil is an adaptive pool of
	// its own.
	Pool *pool.Pool
	// Value makes any JSON value that the function returns the one output of its
	// event, null if it returns none, in place of events. Sinks want no columns then.
	Value bool
}

// Limits hold whatever the script does. A zero field means the default.
type Limits struct {
	EventTime time.Duration // for one event; default 100 ms
	BatchTime time.Duration // for a batch; default 2 s
	Memory    int           // bytes a VM may hold; default 64 MiB
	Output    int           // bytes of output for one batch; default 64 MiB
}

// WithDefaults fills the zero fields.
func (l Limits) WithDefaults() Limits {
	if l.EventTime == 0 {
		l.EventTime = 100 * time.Millisecond
	}
	if l.BatchTime == 0 {
		l.BatchTime = 2 * time.Second
	}
	if l.Memory == 0 {
		l.Memory = 64 << 20
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

// A LimitError says that a batch hit a limit that is its own and not one event's.
type LimitError struct {
	Limit string // "batch time", "output"
	Err   *Error // where the script was
}

func (e *LimitError) Error() string { return fmt.Sprintf("%s limit: %v", e.Limit, e.Err) }

// A Language is how a kind of engine is offered to configurations.
type Language struct {
	Name string
	Doc  string
	// Load compiles and checks the code; a fault in it is an *Error.
	Load func(ctx context.Context, code Code, opts Options) (Script, error)
}
