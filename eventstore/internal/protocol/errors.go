package protocol

import (
	"errors"
	"fmt"
)

// ErrClosed says that the Client is closed.
var ErrClosed = errors.New("eventstore: closed")

// ErrMemory says that writing Parquet files needs more memory than its process may use. When the
// Segment or Merge is Wide, rows get small row groups and a process of their own, which may use
// three times as much.
var ErrMemory = errors.New("the process that writes Parquet files needs more memory than it may use")

// A QueryError is SQL that cannot be answered.
type QueryError struct {
	Message string `json:"message"`          // what is wrong, in DuckDB's words
	Hint    string `json:"hint,omitempty"`   // how to fix it; may be empty
	Line    int    `json:"line,omitempty"`   // in the SQL, counted from 1; 0 if unknown
	Column  int    `json:"column,omitempty"` // in the line, in characters, counted from 1
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

// ErrQueryMemory says that a query needs more memory than its limit.
var ErrQueryMemory = &QueryError{
	Message: "the query needs more memory than it may use",
	Hint:    "narrow it by time, or raise the memory limit",
}
