// Package eventstore is the sink that writes to the embedded event store. Rows
// and ranges are committed in one transaction of the store, so that it gives
// exactly once. Without cgo there is no event store, and the kind is absent.
package eventstore
