//go:build cgo && luajit

package luajit

import "github.com/perigeedb/perigee/script"

// Handler returns a script.Handler for Lua that has nothing loaded yet.
func Handler() script.Handler { return script.NewHandler(Language, script.Options{}) }
