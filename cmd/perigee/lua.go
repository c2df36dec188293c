package main

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/script/computed"
	"github.com/perigeedb/perigee/script/lua"
)

// usesLua reports whether a script or a computed column is in Lua.
func usesLua(c *config.Config) bool {
	return slices.ContainsFunc(c.Pipelines, func(p config.Pipeline) bool {
		return p.Script != nil && p.Script.Language == lua.Language().Name ||
			slices.ContainsFunc(p.Computed, func(c config.Computed) bool {
				return !computed.IsBuilt(c.Func) && !strings.HasSuffix(c.Func, ".so")
			})
	})
}

// logLua logs the Lua engine of this build, as a warning if it is the slow one.
func logLua(log *slog.Logger) {
	if lua.Slower() == "" {
		log.Info("lua engine", "version", lua.Engine())
		return
	}
	log.Warn("lua engine", "version", lua.Engine(), "cost", lua.Slower())
}

// describeLua returns the Lua engine of this build, with its drawbacks if it is the slow one.
func describeLua() string {
	if lua.Slower() == "" {
		return lua.Engine()
	}
	return lua.Engine() + ": " + lua.Slower()
}
