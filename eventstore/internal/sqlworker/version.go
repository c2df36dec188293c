//go:build linux && cgo

package sqlworker

import duck "github.com/duckdb/duckdb-go-bindings"

// Version returns the version of the linked DuckDB.
func Version() string { return "DuckDB " + duck.LibraryVersion() }
