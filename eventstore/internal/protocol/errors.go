package protocol

import (
	"errors"

	"github.com/perigeedb/perigee/event"
)

// ErrClosed reports that the Client is closed.
var ErrClosed = errors.New("eventstore: closed")

// ErrMemory reports that writing Parquet files needs more memory than its process may use. A
// Segment or Merge that is LowMemory uses small row groups and a separate process with three times
// the memory.
var ErrMemory = errors.New("the process that writes Parquet files needs more memory than it may use")

// ErrQueryMemory reports that a query needs more memory than its limit.
var ErrQueryMemory = &event.Fault{
	Message: "the query needs more memory than it may use",
	Hint:    "narrow it by time, or raise the memory limit",
}
