package lua

import "github.com/perigeedb/perigee/nodedb"

// An Extension adds the modules nodedb and yottadb to LuaJIT scripts: pass it in script.Options. It
// is safe for concurrent use.
type Extension struct{ store *nodedb.Store }

// NewExtension returns the modules for a store, which must stay open until the scripts are closed.
func NewExtension(store *nodedb.Store) Extension { return Extension{store} }

// Modules returns the module names for require.
func (Extension) Modules() []string { return []string{"nodedb", "yottadb"} }

// Source returns the Lua source that creates the modules.
func (Extension) Source() string { return source }

// source wraps the parts in functions and passes them to the engine's function.
var source = "local function part() " + engine + "\nend\nlocal make = part()\n" +
	"local function face() " + Face + "\nend\nlocal function backend() " + FFI + "\nend\nlocal function strings() " + Strings +
	"\nend\nreturn make(face(), backend(), strings())"
