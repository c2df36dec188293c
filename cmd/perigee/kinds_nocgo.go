//go:build !cgo

package main

import (
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
)

func sinksWithC(*eventStore) []sink.Kind { return nil }

// engineVersions names the Lua engine.
func engineVersions() []string { return []string{lua.Engine()} }
