//go:build !cgo

package main

import (
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/sink"
)

func sinksWithC(*eventStore) []sink.Kind { return nil }

// enginesOfLua offers the engine in Go under the name that LuaJIT has in a build
// with C: the same configuration runs in both.
func enginesOfLua() []script.Language {
	lua := gopherlua.Language()
	lua.Name = "lua"
	return []script.Language{lua}
}

// engineVersions names the libraries in C that are linked in: none.
func engineVersions() []string { return nil }
