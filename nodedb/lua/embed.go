// Package lua holds the Lua side of the node database: the module nodedb, and the module
// yottadb for scripts that were written for lua-yottadb.
//
// Outside of Perigee, "make nodedb-lua" builds them for LuaJIT and Lua 5.1 to 5.4. The engine
// runs the same sources in its own LuaJIT.
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
)
