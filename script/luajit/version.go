//go:build cgo && luajit

package luajit

import "github.com/perigeedb/perigee/internal/luajit"

// Version names the LuaJIT that is linked in.
func Version() string { return luajit.Version() }
