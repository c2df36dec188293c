// Package manifest stores the metadata of an event store: its tables with their schemas,
// settings and committed ranges, the Parquet files that hold their rows, and the running
// deletes.
//
// A version of the manifest is replaced atomically by the next. A Parquet file belongs to the
// store only while the manifest lists it. A log file belongs to the store only from
// Manifest.LogStart on. The process that owns the folder writes the manifest; any process may
// load it.
//
// The file Name names a second file, its base, and how many bytes of it count, with their
// checksum. The base has a version as a line of JSON, and after it a line for each change, so
// that the cost of a change does not depend on the number of files. After many changes, a new
// base is written. A backup has the whole manifest in the file Name instead.
//
// A saved or loaded Manifest is immutable and safe for concurrent reads. Changes go into a
// Clone.
package manifest
