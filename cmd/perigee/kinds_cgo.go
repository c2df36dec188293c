//go:build cgo

package main

import (
	store "github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/eventstore"
)

func sinksWithC(store *eventStore) []sink.Kind {
	return []sink.Kind{eventstore.Kind(store.open)}
}

func enginesOfLua() []script.Language { return []script.Language{luajit.Language} }

// engineVersions names the libraries in C that are linked in.
func engineVersions() []string { return []string{luajit.Version(), store.Version()} }
