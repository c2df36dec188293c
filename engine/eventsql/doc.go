// Package eventsql gives an engine the embedded event store: the sink that writes to
// it, and SQL over its tables and the dead letters.
//
//	eventsql.RunWorker() // first in main: this process may be a worker of the store
//	store := new(eventsql.Store)
//	options := engine.Options{
//		Kinds:    engine.Kinds{Sinks: store.Kinds(), Metrics: []prometheus.Collector{store}},
//		Services: []engine.Service{store},
//	}
//
// A Store belongs to one engine. Without cgo there is no event store: Kinds is empty
// and queries return the error of Available.
package eventsql

import "time"

// A Request is SQL and how its rows are written.
type Request struct {
	SQL    string
	Params []string // as name=text, or name:type=text
	Format string   // one of Formats
	Rows   int64    // maximum number of rows; 0 is no limit
	Shown  int      // rows that a table shows of a longer result, from both ends; 0 shows its first
	Time   time.Duration
	Memory int64 // bytes; 0 is the engine's

	// Where the SQL begins in a text, for errors. May be empty.
	File         string
	Text         string
	Line, Column int
}

// Formats are how rows can be written.
const Formats = "table,json,ndjson,csv,arrow,parquet"

// IsBinary reports whether a format is not text.
func IsBinary(format string) bool { return format == "arrow" || format == "parquet" }

// A Macro is a function of SQL that is written in SQL.
type Macro struct{ Call, Doc string }
