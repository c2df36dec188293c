// Package manifest holds what an event store consists of: its tables with their schemas,
// settings and committed ranges, the Parquet files that hold their rows, and the deletes
// that are under way.
//
// The manifest is one file, which Save replaces atomically. A Parquet file belongs to the
// store only while the manifest names it, and a file of the log only from Manifest.LogStart
// on. The process that owns the folder writes the manifest; any process may load it.
//
// A Manifest that was saved or loaded is not changed: changes go into a Clone. So many
// goroutines may read it.
package manifest
