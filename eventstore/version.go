//go:build linux && cgo

package eventstore

import "github.com/perigeedb/perigee/eventstore/internal/sqlworker"

// Version returns the version of the linked DuckDB.
func Version() string { return sqlworker.Version() }
