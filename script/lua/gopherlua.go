//go:build !cgo || !luajit

package lua

import (
	"runtime/debug"

	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
)

// The factor is the range over the jobs of "make bench-crossing".
const slower = "scripts run 20 to 30 times slower than on LuaJIT and without a memory limit; " +
	`for LuaJIT build with "make build" in a clone of the repository`

func language() script.Language {
	language := gopherlua.Language()
	language.Name = "lua"
	return language
}

func engine() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/yuin/gopher-lua" {
				return "gopher-lua " + module.Version
			}
		}
	}
	return "gopher-lua"
}
