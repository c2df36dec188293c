// Package nodedb is a hierarchical, transactional, embedded database.
//
// A node has a path, an optional value, and optional children: ^users(7,"name") is the node
// "name" below the node 7 below ^users. Values and subscripts are strings and exact decimal
// numbers; values may also be booleans. Children are ordered: "" first, then numbers by
// value, then strings by their bytes.
//
//	store, err := nodedb.Open("state", nodedb.Options{})
//	users := nodedb.Name("^users")
//	err = store.Update(ctx, func(tx *nodedb.Tx) error {
//		return tx.Set(users.At(7, "name"), "Ada")
//	})
//
// Names that begin with ^ are stored in the folder and shared by all processes that open it.
// Other names are trees in the memory of one Session, with the same methods.
//
// A [Unit] is a folder for the state of a pipeline. One process has it open, and numbered deltas
// change it; see [OpenUnit].
//
// # Guarantees
//
// [Store.Update] runs a function in a transaction. The transaction reads one snapshot, and its
// changes stay invisible until it commits. They are all durable when Update returns. If another
// transaction has changed nodes that the function read, the function runs again. A change that a
// [Session] makes outside a transaction is visible to this process at once. It is durable, and
// visible to other processes, after [Options.FlushInterval] or when [Store.Sync] returns. If a
// process is killed at any moment, the store stays consistent and the process's locks are released.
//
// A committed [Delta] is in memory, and on disk after [UnitOptions.FlushAge]. If the process is
// killed, the folder has all deltas up to a number, and perhaps parts of later ones. The owner keeps
// the later ones, encoded, and completes the unit by [Unit.Apply] before it reads it.
//
// # Concurrency
//
// A Store is safe for concurrent use by many goroutines, and several processes may open its folder.
// Only one goroutine at a time may use a Session, a Tx and the iterations that they return. Sessions
// of one store run in parallel. A Path and a Value are immutable. A Unit is safe for concurrent use; a
// Delta is from Freeze on, and before that has one goroutine.
//
// The database is written in C, over LMDB. Builds without cgo or without the build tag lmdb,
// which tools/go.sh sets, have the same API, and Open returns [ErrUnavailable].
package nodedb
