//go:build linux && cgo

package duckdb_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// TestPlacesOfErrors finds the line and column that DuckDB marks with a caret.
func TestPlacesOfErrors(t *testing.T) {
	for _, test := range []struct {
		message, sql string
		want         protocol.QueryError
	}{
		{"Binder Error: no\n\nLINE 1: SELECT x\n               ^", "SELECT x", protocol.QueryError{Message: "no", Line: 1, Column: 8}},
		{"Binder Error: no\n\nLINE 2: x\n        ^", "SELECT\nx", protocol.QueryError{Message: "no", Line: 2, Column: 1}},
		{"Binder Error: no\n\nLINE 1: ...éé, xx\n               ^", "SELECT ééé, xx", protocol.QueryError{Message: "no", Line: 1, Column: 13}},
		{"Binder Error: no\n\nLINE 1: x\n", "x", protocol.QueryError{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: no\n\nLINE 1: x\n                      ^", "x", protocol.QueryError{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: column q\nCandidate bindings: \"a\",\n \"b\"", "q", protocol.QueryError{Message: "column q", Hint: `Candidate bindings: "a", "b"`}},
		{"Catalog Error: f\nDid you mean \"g\"?\n\nLINE 1: f()\n        ^", "f()", protocol.QueryError{Message: "f", Hint: `Did you mean "g"?`, Line: 1, Column: 1}},
		{"Out of Memory Error: no\n\nPossible solutions:\n* SET memory", "x", protocol.QueryError{Message: "no"}},
		{"just words", "x", protocol.QueryError{Message: "just words"}},
	} {
		got, ok := errors.AsType[*protocol.QueryError](duckdb.ExplainError(duckdb.NewError(test.message), test.sql))
		if !ok || *got != test.want {
			t.Errorf("%q: %+v, want %+v", test.message, got, test.want)
		}
	}
	if err := duckdb.ExplainError(io.ErrUnexpectedEOF, "x"); err != io.ErrUnexpectedEOF {
		t.Errorf("an error that is not DuckDB's: %v", err)
	}
	for message, want := range map[string]bool{
		"Out of Memory Error: x": true, "IO Error: Failed to pin block": true, "failed to allocate data of size 3": true, "std::bad_alloc": true,
		"Could not allocate block": true, "Binder Error: Out of Memory": false, "": false,
	} {
		if got := duckdb.IsOutOfMemory(fmt.Errorf("query: %w", duckdb.NewError(message))); got != want {
			t.Errorf("%q: out of memory: %v", message, got)
		}
	}
	if duckdb.IsOutOfMemory(errors.New("Out of Memory Error: x")) {
		t.Error("another's error is DuckDB's")
	}
	for want, q := range map[string]protocol.QueryError{"m": {Message: "m"}, "m (h)": {Message: "m", Hint: "h"}, "line 2, column 3: m (h)": {Message: "m", Hint: "h", Line: 2, Column: 3}} {
		if got := q.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
