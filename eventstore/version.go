//go:build linux && cgo

package eventstore

import "github.com/perigeedb/perigee/eventstore/internal/sqlworker"

// Version names the DuckDB that is linked in.
func Version() string { return sqlworker.Version() }
