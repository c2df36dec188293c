package eventsql

import "time"

// A FunctionGroup is functions of SQL that a query may call.
type FunctionGroup struct {
	Name  string
	Names []string
}

// A SystemTable is a table of SQL whose rows are not stored.
type SystemTable struct {
	Name    string // as perigee.log
	Doc     string
	Columns []SystemColumn
}

// A SystemColumn is a column of a system table.
type SystemColumn struct{ Name, Type, Doc string }

// A Table describes a table of the event store.
type Table struct {
	Name      string     `json:"table"`
	Rows      int64      `json:"rows"`                // including those of deletes under way
	LogRows   int64      `json:"log_rows"`            // of Rows, those that are only in the log
	Files     []File     `json:"files"`               // oldest first
	Bytes     int64      `json:"bytes"`               // of Files
	Oldest    *time.Time `json:"oldest,omitempty"`    // least event time
	Newest    *time.Time `json:"newest,omitempty"`    // greatest event time
	Event     string     `json:"event,omitempty"`     // event column
	Time      string     `json:"time,omitempty"`      // time column
	Retention string     `json:"retention,omitempty"` // as 720h0m0s; absent if rows stay for ever
	Unique    *Unique    `json:"unique,omitempty"`    // absent if rows may repeat
	Schema    uint64     `json:"schema"`              // version
	Columns   []Column   `json:"columns"`
	Deletes   []Delete   `json:"deletes"` // under way, oldest first
	// Recomputes are the last of each computed column, oldest first.
	Recomputes []Recompute `json:"recomputes,omitempty"`
}

// Unique describes the keys that a table has seen.
type Unique struct {
	Key      []string `json:"key"`
	Window   string   `json:"window"`        // as 24h0m0s
	Keys     int      `json:"keys"`          // in memory; some may have left the window
	Bytes    int64    `json:"bytes"`         // of memory that they take
	Memory   int64    `json:"memory"`        // bytes that they may take
	Repeated uint64   `json:"repeated_rows"` // not stored, since the store was opened
}

// A Column is a column of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // of SQL
}

// A File is a Parquet file of a table.
type File struct {
	Name   string     `json:"file"` // below the store's folder
	Rows   int64      `json:"rows"`
	Bytes  int64      `json:"bytes"`
	Oldest *time.Time `json:"oldest,omitempty"`
	Newest *time.Time `json:"newest,omitempty"`
	Schema uint64     `json:"schema"`
	// Recomputing is the column that a recompute has yet to fill, of several the first.
	Recomputing string `json:"recomputing,omitempty"`
}

// A Delete is a delete under way: no query sees its rows, but files may still have them.
type Delete struct {
	Number uint64    `json:"number"`
	Table  string    `json:"table"`
	Where  string    `json:"where"`
	Asked  time.Time `json:"asked"`
}

// A TableChange says what becomes of a table.
type TableChange struct {
	Table   string `json:"table"`
	To      string `json:"to,omitempty"`      // its new name
	Release bool   `json:"release,omitempty"` // the old name is free
	Column  string `json:"column,omitempty"`  // that is dropped, or has the times; empty for no time column
	Unit    string `json:"unit,omitempty"`    // of numbers in the time column
	Type    string `json:"type,omitempty"`    // of the time column
}

// A Recompute fills a computed column of the rows that a table had when it was asked for.
type Recompute struct {
	Number  uint64     `json:"number"`
	Table   string     `json:"table"`
	Column  string     `json:"column"`
	Asked   time.Time  `json:"asked"`
	Ended   *time.Time `json:"ended,omitempty"` // absent while it is under way
	Rows    int64      `json:"rows"`            // computed so far
	Failed  int64      `json:"failed_rows"`     // of Rows, those that are null because the function failed
	Error   string     `json:"error,omitempty"` // why the first of those has no value, or why it was stopped
	Stopped bool       `json:"stopped,omitempty"`
	Files   int        `json:"files,omitempty"`      // of the table, while it is under way
	Done    int        `json:"files_done,omitempty"` // of Files
	InLog   bool       `json:"in_log,omitempty"`     // rows wait in the log until they are in files
	Idle    bool       `json:"idle,omitempty"`       // nothing is done: no engine runs whose configuration computes the column
}

// A TailRequest says which rows Tail returns.
type TailRequest struct {
	Table string     `json:"table"`
	Where string     `json:"where,omitempty"` // condition in SQL
	Since *time.Time `json:"since,omitempty"` // begin with the stored rows of this event time or later
}

// A TailBatch is rows of a Tail.
type TailBatch struct {
	Columns []Column `json:"columns"`
	Rows    []byte   `json:"-"`                 // one JSON object per line
	Size    int      `json:"size"`              // of Rows, in bytes
	Count   int      `json:"count"`             // of rows
	Skipped bool     `json:"skipped,omitempty"` // rows before these were left out

	Error string `json:"error,omitempty"` // why there are no more
}

// An ImportFile says what is imported where.
type ImportFile struct {
	Table string `json:"table"`          // made if it is missing
	Time  string `json:"time,omitempty"` // its time column
	File  string `json:"file"`           // identifies the content of the file
	// Columns are declared in a table that is made.
	Columns []Column `json:"columns,omitempty"`
	Again   bool     `json:"again,omitempty"` // append rows that have been imported already once more
}

// ImportRows are the next rows of a file.
type ImportRows struct {
	First, Count uint64
	Documents    []byte // JSON, each on a line, of the rows that are not in LeaveOut
	LeaveOut     []uint32
}

// Inferred is a table that an import has made, with columns of the types that it inferred.
type Inferred struct {
	Table       string
	Declaration string // line of YAML that declares the times in it, which are text; "" if there are none
}

// A RejectedRow is a row that the table cannot have.
type RejectedRow struct {
	Row    int    `json:"row"` // counted from ImportRows.First
	Column string `json:"column,omitempty"`
	Reason string `json:"reason"`
}
