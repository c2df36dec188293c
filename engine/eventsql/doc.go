// Package eventsql gives an engine the embedded event store: the sink that writes to
// it, and SQL over its tables and the dead letters.
//
//	eventsql.RunWorker() // first in main: this process may be a worker of the store
//	store := new(eventsql.Store)
//	options := engine.Options{
//		Kinds:    engine.Kinds{Sinks: store.Kinds()},
//		Services: []engine.Service{store},
//	}
//
// A Store belongs to one engine. Without cgo there is no event store: Kinds is empty
// and queries return the error of Available.
package eventsql

// A FunctionGroup is functions of SQL that a query may call.
type FunctionGroup struct {
	Name  string
	Names []string
}
