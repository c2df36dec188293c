// Package eventstore is the embedded event store: tables of JSON events that
// arrive in batches, are durable when Append returns, and answer SQL at once.
//
// A table's columns are inferred from the events, or declared. They form one
// union schema that is kept in the store and only ever widens: a null to
// anything, an int64 to a double, everything else to JSON. No column is ever
// hidden, and nothing in an event is left out: what finds no column of its own
// stands in the column _rest.
//
// The truth is a write-ahead log of all tables, package wal: rows and the range of
// positions that they came from stand in one frame, and positions that a table already
// has are skipped, so that what is sent again after a crash counts once. Files of the log
// that are full, or old, are sealed: their rows become Parquet files, one for each day of
// event time, and the ranges move into the manifest, package manifest. Small files are
// merged, old ones are removed, and those with rows of a Delete are rewritten, each by one
// change of the manifest.
//
// SQL runs in a process of its own, package sqlworker, which reads manifest, log and files
// itself: whatever a query does, appends do not notice. Two more such processes write Parquet
// files and merge them. All are the running program, started again, so that it must call
// RunWorker first in main.
//
// One process owns a store's folder. In it a Store is safe for concurrent use:
// any number of goroutines append and query. Appends that wait while a commit is synced
// share the next one. A query sees what was acknowledged when it began. Appends wait when
// the log is not sealed as fast as it grows.
//
// The store needs Linux and cgo; elsewhere this package is empty.
package eventstore
