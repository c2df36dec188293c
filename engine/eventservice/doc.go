// Package eventservice gives an engine the embedded event store: the sink that writes to
// it, and SQL over its tables and the dead letters.
//
//	eventservice.RunWorker() // first in main: this process may be a worker of the store
//	store := new(eventservice.Store)
//	options := engine.Options{
//		Kinds:    engine.Kinds{Sinks: store.Kinds(), Metrics: []prometheus.Collector{store}},
//		Services: []engine.Service{store},
//	}
//
// A Store belongs to one engine. Query, Tables and the other operations ask the engine that
// runs in a data folder; without one, they open the store in the folder.
//
// Builds without cgo have no event store: Kinds is empty, and without a running engine
// operations return the error of Available.
package eventservice

import "time"

// A Request is a query with its parameters, format and limits.
type Request struct {
	SQL    string
	Params []string // each name=text or name:type=text
	Format string   // one of Formats
	Rows   int64    // maximum number of rows; 0 is no limit
	Shown  int      // rows that a table shows of a longer result, from both ends; 0 shows the first rows
	Time   time.Duration
	Memory int64 // bytes; 0 for the engine's limit

	// Place of the SQL in a text, for errors. May be empty.
	File         string
	Text         string
	Line, Column int
}

// Formats lists the formats of results.
const Formats = "table,json,ndjson,csv,arrow,parquet"

// IsBinary reports whether a format is not text.
func IsBinary(format string) bool { return format == "arrow" || format == "parquet" }

// folderName is the event store's folder in the data folder.
const folderName = "events"
