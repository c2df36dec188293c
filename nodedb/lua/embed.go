// Package lua contains the Lua modules of the node database: nodedb, and yottadb for scripts
// written for lua-yottadb.
//
// Outside of Perigee, "make nodedb-lua" builds them for LuaJIT and Lua 5.1 to 5.4. The engine
// runs the same sources in its own LuaJIT: pass NewExtension's result in script.Options.
package lua

import _ "embed"

// The Lua sources of the modules. Each is the body of a function.
var (
	// Face returns function(core, marker), which creates the module for a backend.
	//go:embed nodedb/face.lua
	Face string
	// FFI returns function(ffi, host), which creates the backend for LuaJIT.
	//go:embed nodedb/ffi.lua
	FFI string
	// Strings returns function(face, core), which creates the module yottadb for a backend.
	//go:embed nodedb/strings.lua
	Strings string
	// engine returns function(face, backend, strings), which returns the constructor of the
	// modules.
	//go:embed nodedb/engine.lua
	engine string
	// state is the same for scripts of pipelines with a state.
	//go:embed nodedb/state.lua
	state string
	// other returns the function that creates the module state, for the states of other pipelines.
	//go:embed nodedb/other.lua
	other string
	// timer and window return functions that create these modules, over a backend.
	//go:embed nodedb/timer.lua
	timer string
	//go:embed nodedb/window.lua
	window string
)
