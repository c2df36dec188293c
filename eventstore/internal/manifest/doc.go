// Package manifest stores the metadata of an event store: its tables with their schemas,
// settings and committed ranges, the Parquet files that hold their rows, and the running
// deletes.
//
// The manifest is one file, which Save replaces atomically. A Parquet file belongs to the
// store only while the manifest lists it. A log file belongs to the store only from
// Manifest.LogStart on. The process that owns the folder writes the manifest; any process may
// load it.
//
// A saved or loaded Manifest is immutable and safe for concurrent reads. Changes go into a
// Clone.
package manifest
