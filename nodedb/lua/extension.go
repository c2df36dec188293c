package lua

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/perigeedb/perigee/nodedb"
)

// An Extension adds the modules nodedb and yottadb to LuaJIT scripts: pass it in script.Options. It
// is safe for concurrent use.
type Extension struct{ store *nodedb.Store }

// NewExtension returns the modules for a store, which must stay open until the scripts are closed.
func NewExtension(store *nodedb.Store) Extension { return Extension{store} }

// Modules returns the module names for require.
func (Extension) Modules() []string { return []string{"nodedb", "yottadb"} }

// Source returns the Lua source that creates the modules.
func (Extension) Source() string { return source }

// Open returns a plua_extension of internal/luajit/extension/extension.h for one engine. The engine
// closes it and then calls release; until then, closing the store fails.
func (e Extension) Open() (extension unsafe.Pointer, release func(), err error) {
	store, release, err := e.store.Native()
	if err != nil {
		return nil, nil, err
	}
	if extension, err = open(store); err != nil {
		release()
		return nil, nil, err
	}
	return extension, release, nil
}

// A StateExtension adds the modules for scripts of pipelines with a state, or that read the states
// of other pipelines: pass it in script.Options. The modules work on the State and the Reads of each
// batch, inside main and timer only. It is safe for concurrent use.
type StateExtension struct {
	keeps  bool     // the pipeline has a state of its own
	reads  []string // states of other pipelines
	renew  time.Duration
	source string
}

// ForState returns the modules for scripts of pipelines with a state, which also read the states of
// other pipelines with these names.
func ForState(reads ...string) StateExtension { return newStateExtension(true, reads) }

// ForReads returns the modules for scripts of pipelines without a state of their own, which read
// the states of other pipelines with these names.
func ForReads(reads ...string) StateExtension { return newStateExtension(false, reads) }

func newStateExtension(keeps bool, reads []string) StateExtension {
	e := StateExtension{keeps: keeps, reads: reads, renew: snapshotAge, source: stateSource}
	if len(reads) > 0 {
		e.source = sourceOfState(keeps, reads)
	}
	return e
}

// Modules returns the module names for require.
func (e StateExtension) Modules() (names []string) {
	if e.keeps {
		names = []string{"nodedb", "yottadb", "timer", "window"}
	}
	if len(e.reads) > 0 {
		names = append(names, "state")
	}
	return names
}

// Source returns the Lua source that creates the modules.
func (e StateExtension) Source() string { return e.source }

// snapshotAge is the age at which an event renews the snapshot of another pipeline's state: for
// longer, it would keep the space of deleted nodes from being reused.
const snapshotAge = 10 * time.Second

// Renewing returns the extension with another age at which an event renews snapshots, for tests.
func (e StateExtension) Renewing(age time.Duration) StateExtension {
	e.renew = age
	return e
}

// Open returns a plua_extension of internal/luajit/extension/extension.h for one engine, which
// attaches the sessions of batches to it.
func (e StateExtension) Open() (extension unsafe.Pointer, release func(), err error) {
	extension, err = open(nil)
	for _, name := range e.reads {
		if err == nil {
			err = addReader(extension, name, e.renew)
		}
	}
	return extension, func() {}, err
}

// source and stateSource pass parts of the modules to a constructor.
var (
	source      = sourceOf(engine, Face, FFI, Strings)
	stateSource = sourceOfState(true, nil)
)

func sourceOfState(keeps bool, reads []string) string {
	names := ""
	for _, name := range reads {
		names += strconv.Quote(name) + ", " // of letters, digits, _ and -
	}
	return sourceOf(state, Face, FFI, Strings, timer, window, other, fmt.Sprintf("return {keeps = %t, reads = {%s}}", keeps, names))
}

// sourceOf wraps texts in functions, and returns the constructor's result for those of the parts.
func sourceOf(constructor string, parts ...string) string {
	var all strings.Builder
	part := func(text string) string { return "(function() " + text + "\nend)()" }
	all.WriteString("return " + part(constructor) + "(")
	for i, text := range parts {
		if i > 0 {
			all.WriteString(", ")
		}
		all.WriteString(part(text))
	}
	all.WriteString(")")
	return all.String()
}
