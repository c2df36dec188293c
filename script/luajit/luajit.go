//go:build cgo && luajit

// Package luajit runs scripts in LuaJIT: one VM per core and script, one crossing
// per batch, events as lazy documents over their bytes.
//
// A Script is safe for concurrent use; a run takes a VM from its pool and waits
// for one when all are in use. A VM that a limit ended is thrown away, and the
// rest of the batch runs in a fresh one.
package luajit

import (
	"context"

	"github.com/perigeedb/perigee/script"
)

// Interpreted is Language with the compiler off; see LoadInterpreted.
var Interpreted = script.Language{
	Name: "lua-interpreted",
	Doc:  "Lua 5.1 in LuaJIT with its compiler off",
	Load: func(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
		return LoadInterpreted(ctx, code, opts)
	},
}

// Language is Lua in LuaJIT.
var Language = script.Language{
	Name: "lua",
	Doc:  "Lua 5.1 in LuaJIT, with limits that hold whatever the script does",
	Load: func(ctx context.Context, code script.Code, opts script.Options) (script.Script, error) {
		return Load(ctx, code, opts)
	},
}
