// Package lua holds the Lua side of the node database: the module nodedb, and the module
// yottadb for scripts that were written for lua-yottadb.
//
// Outside of Perigee, "make nodedb-lua" builds them for LuaJIT and Lua 5.1 to 5.4. The engine
// runs the same sources in its own LuaJIT: give a NewExtension to script.Options.
package lua

import _ "embed"

// The parts of the modules. Each source returns a function.
var (
	// Face returns function(core, marker), which makes the module over a backend.
	//go:embed nodedb/face.lua
	Face string
	// FFI returns function(ffi, host), which makes the backend for LuaJIT.
	//go:embed nodedb/ffi.lua
	FFI string
	// Strings returns function(face, core), which makes the module yottadb over a backend.
	//go:embed nodedb/strings.lua
	Strings string
	// engine returns function(face, backend, strings), which returns what makes the modules in the engine.
	//go:embed nodedb/engine.lua
	engine string
)
