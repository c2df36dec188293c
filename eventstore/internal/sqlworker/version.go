//go:build linux && cgo

package sqlworker

import duck "github.com/duckdb/duckdb-go-bindings"

// Version names the DuckDB that is linked in.
func Version() string { return "DuckDB " + duck.LibraryVersion() }
