// Package eventstore is the sink that writes to the embedded event store. It
// commits rows and ranges in one transaction of the store, and so delivers exactly
// once. Builds without cgo have no event store and lack this kind.
package eventstore
