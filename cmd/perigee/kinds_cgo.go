//go:build cgo

package main

import (
	store "github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/eventstore"
)

func sinksWithC(store *eventStore) []sink.Kind {
	return []sink.Kind{eventstore.Kind(store.open)}
}

// engineVersions names the Lua engine and the other libraries that do the work.
func engineVersions() []string { return []string{lua.Engine(), store.Version()} }
