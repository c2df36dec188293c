//go:build !cgo

package main

import (
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/gopherlua"
	"github.com/perigeedb/perigee/sink"
)

func sinksWithC(*eventStore) []sink.Kind { return nil }

func enginesOfLua() []script.Language { return []script.Language{gopherlua.Language()} }

// engineVersions names the libraries in C that are linked in: none.
func engineVersions() []string { return nil }
