// Package sqlworker runs DuckDB for the event store, in child processes of its own.
//
// A worker is the running program, started again. It reads the store's manifest, the
// frames of its log, which it maps, and its Parquet files; it holds nothing that is not
// in them. Whatever a query does to it, the parent goes on: a worker that crashes, hangs
// or needs too much memory ends, queries that ran beside the one that ended it run again,
// and the next query starts another worker.
//
// A program that opens event stores calls Run at the start of main. A Client is safe for
// concurrent use; its Rows are for one goroutine at a time.
package sqlworker
