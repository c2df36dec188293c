// Package sqlworker is the process that runs DuckDB for the event store: it serves the requests
// of its parent (package sqlclient). It reads the store's manifest, the mapped frames of its
// log, and its Parquet files, writes Parquet files, and has no other state.
//
// A program that opens event stores must call Run at the start of main. A worker serves
// concurrent requests.
package sqlworker
