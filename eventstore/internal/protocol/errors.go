package protocol

import (
	"errors"
	"fmt"
)

// ErrClosed reports that the Client is closed.
var ErrClosed = errors.New("eventstore: closed")

// ErrMemory reports that writing Parquet files needs more memory than its process may use. A
// Segment or Merge that is Wide uses small row groups and a separate process with three times
// the memory.
var ErrMemory = errors.New("the process that writes Parquet files needs more memory than it may use")

// A QueryError reports SQL that is invalid or that the store cannot answer.
type QueryError struct {
	Message string `json:"message"`          // message of DuckDB or of the store
	Hint    string `json:"hint,omitempty"`   // how to fix it; may be empty
	Line    int    `json:"line,omitempty"`   // in the SQL, from 1; 0 if unknown
	Column  int    `json:"column,omitempty"` // in the line, in characters, from 1
}

func (e *QueryError) Error() string {
	text := e.Message
	if e.Line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, text)
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// ErrQueryMemory reports that a query needs more memory than its limit.
var ErrQueryMemory = &QueryError{
	Message: "the query needs more memory than it may use",
	Hint:    "narrow it by time, or raise the memory limit",
}
