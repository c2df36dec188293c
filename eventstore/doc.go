// Package eventstore implements an embedded event store: tables of JSON events. Events arrive
// in batches, are durable when Append returns, and are visible to SQL immediately.
//
// The columns of a table are inferred from the events or declared. They form a union schema
// that only widens: null to anything, int64 to double, everything else to JSON. Columns are
// never hidden and fields are never lost: fields without a column are kept in _rest.
//
// The source of truth is a write-ahead log shared by all tables (package wal). One frame
// holds rows and the range of positions that they came from. Append skips positions that the
// table already has, so data that is sent again after a crash is stored once. Maintenance
// seals log files that are full or old: it writes their rows to Parquet files, one per day of
// event time, and moves their ranges into the manifest (package manifest). It also merges
// small files, removes expired ones, and rewrites those with rows of a Delete. Each step is
// one atomic change of the manifest.
//
// SQL runs in a separate process (package sqlworker), which reads the manifest, the log and
// the files itself, so a query cannot disturb appends. Two more processes write Parquet files
// and merge them. These processes run the same executable, so main must call RunWorker first.
//
// One process owns a store's folder. Within it, a Store is safe for concurrent use by any
// number of goroutines. Appends that wait for a sync share the next commit. A query sees
// every event acknowledged before it began. Appends block while sealing falls behind the
// growth of the log.
//
// The store needs Linux and cgo; elsewhere this package is empty.
package eventstore
