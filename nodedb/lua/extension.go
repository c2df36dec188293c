package lua

import (
	"strings"
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

// A StateExtension adds the modules for scripts of pipelines with a state: pass it in
// script.Options. The modules work on the State of each batch, inside main and timer only. It is
// safe for concurrent use.
type StateExtension struct{}

// ForState returns the modules for scripts of pipelines with a state.
func ForState() StateExtension { return StateExtension{} }

// Modules returns the module names for require.
func (StateExtension) Modules() []string { return []string{"nodedb", "yottadb", "timer", "window"} }

// Source returns the Lua source that creates the modules.
func (StateExtension) Source() string { return stateSource }

// Open returns a plua_extension of internal/luajit/extension/extension.h for one engine, which
// attaches the sessions of batches to it.
func (StateExtension) Open() (extension unsafe.Pointer, release func(), err error) {
	extension, err = open(nil)
	return extension, func() {}, err
}

// source and stateSource pass parts of the modules to a constructor.
var (
	source      = sourceOf(engine, Face, FFI, Strings)
	stateSource = sourceOf(state, Face, FFI, Strings, timer, window)
)

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
