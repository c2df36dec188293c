// Package lua is Lua on the engine that this build has: LuaJIT under the build tag
// luajit, which "make build" sets, and gopher-lua without it or without cgo. A script
// sees the same on both; they differ in speed, and gopher-lua has no memory limit.
//
// Import it rather than one of the engines, so that a program builds with a plain
// "go build" and gets LuaJIT with the tag.
package lua

import (
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luacheck"
)

// Language returns Lua. Its name is "lua" on both engines, so that a configuration
// runs on either.
func Language() script.Language {
	lua := language()
	lua.Check = luacheck.Check
	return lua
}

// Engine returns the name and version of the engine, as in "LuaJIT 2.1.0-beta3".
func Engine() string { return engine() }

// Slower returns what this build loses because it is not built with LuaJIT, as a
// sentence, or "" when it is.
func Slower() string { return slower }
