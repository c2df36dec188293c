package eventservice

import "time"

// A FunctionGroup is a group of SQL functions that a query may call.
type FunctionGroup struct {
	Name  string
	Names []string
}

// A Table describes a table of the event store.
type Table struct {
	Name      string     `json:"table"`
	Rows      int64      `json:"rows"`                // including rows of unfinished deletes
	LogRows   int64      `json:"log_rows"`            // rows that are only in the log
	Files     []File     `json:"files"`               // oldest first
	Bytes     int64      `json:"bytes"`               // bytes of all files
	Oldest    *time.Time `json:"oldest,omitempty"`    // least event time
	Newest    *time.Time `json:"newest,omitempty"`    // greatest event time
	Event     string     `json:"event,omitempty"`     // event column
	Time      string     `json:"time,omitempty"`      // time column
	Retention string     `json:"retention,omitempty"` // such as 720h0m0s; absent without retention
	Unique    *Unique    `json:"unique,omitempty"`    // absent without unique
	Schema    uint64     `json:"schema"`              // version
	Columns   []Column   `json:"columns"`
	Deletes   []Delete   `json:"deletes"` // unfinished deletes, oldest first
	// Recomputes lists the last recompute of each computed column, oldest first.
	Recomputes []Recompute `json:"recomputes,omitempty"`
}

// Unique describes the keys that a table has seen.
type Unique struct {
	Key      []string `json:"key"`
	Window   string   `json:"window"`        // such as 24h0m0s
	Keys     int      `json:"keys"`          // in memory; some may have left the window
	Bytes    int64    `json:"bytes"`         // memory in use
	Memory   int64    `json:"memory"`        // memory limit in bytes
	Repeated uint64   `json:"repeated_rows"` // rows dropped since the store was opened
}

// A Column is a column of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // SQL type
}

// A File is a Parquet file of a table.
type File struct {
	Name   string     `json:"file"` // below the store's folder
	Rows   int64      `json:"rows"`
	Bytes  int64      `json:"bytes"`
	Oldest *time.Time `json:"oldest,omitempty"`
	Newest *time.Time `json:"newest,omitempty"`
	Schema uint64     `json:"schema"`
	// Recomputing is the first column that a recompute still has to fill.
	Recomputing string `json:"recomputing,omitempty"`
}

// A Delete is an unfinished delete: its rows are removed from queries, but files may still
// contain them.
type Delete struct {
	Number      uint64    `json:"number"`
	Table       string    `json:"table"`
	Where       string    `json:"where"`
	RequestedAt time.Time `json:"asked"`
}

// A TableChange describes a change of a table.
type TableChange struct {
	Table   string `json:"table"`
	To      string `json:"to,omitempty"`      // new name
	Release bool   `json:"release,omitempty"` // free the old name
	Column  string `json:"column,omitempty"`  // column to drop, or new time column; empty for no time column
	Unit    string `json:"unit,omitempty"`    // unit of numbers in the time column
	Type    string `json:"type,omitempty"`    // type of the time column
}

// A Recompute fills a computed column of the rows that a table had at the request.
type Recompute struct {
	Number      uint64     `json:"number"`
	Table       string     `json:"table"`
	Column      string     `json:"column"`
	RequestedAt time.Time  `json:"asked"`
	Ended       *time.Time `json:"ended,omitempty"` // absent while it runs
	Rows        int64      `json:"rows"`            // computed so far
	Failed      int64      `json:"failed_rows"`     // rows that are null because the function failed
	Error       string     `json:"error,omitempty"` // first error of the function, or the reason for the end
	Stopped     bool       `json:"stopped,omitempty"`
	Files       int        `json:"files,omitempty"`      // files of the table, while it runs
	Done        int        `json:"files_done,omitempty"` // finished files
	InLog       bool       `json:"in_log,omitempty"`     // rows in the log wait until they are in files
	Idle        bool       `json:"idle,omitempty"`       // waiting for an engine whose configuration computes the column
}

// A TailRequest selects the rows of a Tail.
type TailRequest struct {
	Table string     `json:"table"`
	Where string     `json:"where,omitempty"` // condition in SQL
	Since *time.Time `json:"since,omitempty"` // begin with stored rows of this event time or later
}

// A TailBatch is a batch of rows of a Tail.
type TailBatch struct {
	Columns []Column `json:"columns"`
	Rows    []byte   `json:"-"`                 // one JSON object per line
	Size    int      `json:"size"`              // bytes of Rows
	Count   int      `json:"count"`             // number of rows
	Skipped bool     `json:"skipped,omitempty"` // rows before these were skipped

	Error string `json:"error,omitempty"` // reason for the end of the tail
}

// An ImportFile describes an imported file and its table.
type ImportFile struct {
	Table string `json:"table"`          // created if it is missing
	Time  string `json:"time,omitempty"` // time column of a new table
	File  string `json:"file"`           // identifies the content of the file
	// Columns are the declared columns of a new table.
	Columns []Column `json:"columns,omitempty"`
	Again   bool     `json:"again,omitempty"` // append the rows again, even if they were imported before
}

// Inferred is a table that an import has created, with inferred types.
type Inferred struct {
	Table       string
	Declaration string // line of YAML that declares its times, which are text; "" without times
}
