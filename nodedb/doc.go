// Package nodedb is a hierarchical, transactional, embedded database.
//
// A node has a path, perhaps a value, and perhaps children: ^users(7,"name") is the node
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
// # Guarantees
//
// [Store.Update] runs a function in a transaction: it reads one snapshot, nobody sees its
// changes before it commits, all of them are durable when Update returns, and the function runs
// again if another transaction changed what it read. A change that a [Session] makes outside a
// transaction is seen by this process at once, and is durable and seen by other processes after
// [Options.FlushInterval], or when [Store.Sync] returns. Killing a process at any moment leaves
// the store whole, without its locks.
//
// # Concurrency
//
// A Store may be used by many goroutines and processes. A Session, a Tx and what they return
// belong to one goroutine at a time; sessions of one store run in parallel. A Path and a Value
// are immutable.
//
// The database is written in C, over LMDB. Builds without cgo or without the build tag lmdb,
// which tools/go.sh sets, have the same API, and Open returns [ErrUnavailable].
package nodedb
