// Package sqlworker runs DuckDB for the event store in child processes.
//
// A worker runs the same executable as its parent. It reads the store's manifest, the mapped
// frames of its log, and its Parquet files, and has no other state. A query cannot harm the
// parent: a worker that crashes, hangs or exceeds its memory is ended. Other queries that ran
// in it are retried, and the next query starts a new worker.
//
// A program that opens event stores must call Run at the start of main. A Client is safe for
// concurrent use; its Rows are not.
package sqlworker
