//go:build linux && cgo

package duckdb_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
)

// TestPlacesOfErrors finds the line and column that DuckDB marks with a caret.
func TestPlacesOfErrors(t *testing.T) {
	for _, test := range []struct {
		message, sql string
		want         event.Fault
	}{
		{"Binder Error: no\n\nLINE 1: SELECT x\n               ^", "SELECT x", event.Fault{Message: "no", Line: 1, Column: 8}},
		{"Binder Error: no\n\nLINE 2: x\n        ^", "SELECT\nx", event.Fault{Message: "no", Line: 2, Column: 1}},
		{"Binder Error: no\n\nLINE 1: ...éé, xx\n               ^", "SELECT ééé, xx", event.Fault{Message: "no", Line: 1, Column: 13}},
		{"Binder Error: no\n\nLINE 1: x\n", "x", event.Fault{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: no\n\nLINE 1: x\n                      ^", "x", event.Fault{Message: "no", Line: 1, Column: 1}},
		{"Binder Error: column q\nCandidate bindings: \"a\",\n \"b\"", "q", event.Fault{Message: "column q", Hint: `Candidate bindings: "a", "b"`}},
		{"Catalog Error: f\nDid you mean \"g\"?\n\nLINE 1: f()\n        ^", "f()", event.Fault{Message: "f", Hint: `Did you mean "g"?`, Line: 1, Column: 1}},
		{"Out of Memory Error: no\n\nPossible solutions:\n* SET memory", "x", event.Fault{Message: "no"}},
		{"just words", "x", event.Fault{Message: "just words"}},
	} {
		got, ok := errors.AsType[*event.Fault](duckdb.ExplainError(duckdb.NewError(test.message), test.sql))
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
}
