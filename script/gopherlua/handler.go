package gopherlua

import "github.com/perigeedb/perigee/script"

// Handler returns a script.Handler for Lua with no code loaded.
func Handler() script.Handler {
	lua := Language()
	lua.Name = "lua"
	return script.NewHandler(lua, script.Options{})
}
