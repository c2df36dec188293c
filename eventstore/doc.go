// Package eventstore is the embedded event store: tables of JSON events that
// arrive in batches, are durable when Append returns, and answer SQL at once.
//
// A table's columns are inferred from the events, or declared. They form one
// union schema that is kept in the store and only ever widens: a null to
// anything, an int64 to a double, everything else to JSON. No column is ever
// hidden, and nothing in an event is left out: what finds no column of its own
// stands in the column _rest.
//
// Rows and the range of positions that they came from are committed in one
// transaction, and positions that a table already has are skipped, so that what
// is sent again after a crash counts once.
//
// One process owns a store's folder. In it a Store is safe for concurrent use:
// any number of goroutines append and query. One goroutine writes; what arrives
// while it commits is its next commit. Queries see what was committed when they
// began and never wait for the writer.
//
// The store is DuckDB, reached through cgo; without cgo this package is empty.
package eventstore
