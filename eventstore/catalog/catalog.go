// Package catalog defines the tables of an event store as its users see them: what a
// configuration declares, what the manifest stores of it, and what a store reports. The types
// encode as JSON, in the manifest, on the engine's socket and for users. They are plain
// values: safe for concurrent use as long as nobody changes them.
package catalog

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Default limits of a query.
const (
	DefaultQueryTime   = 30 * time.Second
	DefaultQueryMemory = 256 << 20 // bytes
)

// A Table describes a table and its contents.
type Table struct {
	Name      string       `json:"table"`
	Rows      int64        `json:"rows"`               // including rows of unfinished deletes
	LogRows   int64        `json:"log_rows"`           // rows that are only in the log
	Files     []File       `json:"files"`              // oldest day first
	Bytes     int64        `json:"bytes"`              // bytes of all files
	Oldest    time.Time    `json:"oldest,omitzero"`    // minimum event time; zero without rows or a time column
	Newest    time.Time    `json:"newest,omitzero"`    // maximum event time
	Event     string       `json:"event,omitempty"`    // event column
	Time      string       `json:"time,omitempty"`     // time column
	Retention Duration     `json:"retention,omitzero"` // 0 if rows are kept forever
	Unique    *UniqueState `json:"unique,omitempty"`   // nil if rows may repeat
	Schema    uint64       `json:"schema"`             // version
	Columns   []Column     `json:"columns"`
	Deletes   []Delete     `json:"deletes"` // unfinished deletes, oldest first
	// Recomputes lists the last recompute of each computed column, oldest first.
	Recomputes []Recompute `json:"recomputes,omitempty"`
	Lake       *LakeState  `json:"lake,omitempty"` // nil if it is not published
}

// A Column is a column of a table or of a query's result.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // SQL type
}

// A File is a Parquet file of a table. It may still have rows of unfinished deletes.
type File struct {
	Name   string    `json:"file"` // below the store's folder
	Rows   int64     `json:"rows"`
	Bytes  int64     `json:"bytes"`
	Oldest time.Time `json:"oldest,omitzero"` // zero without a time column
	Newest time.Time `json:"newest,omitzero"`
	Schema uint64    `json:"schema"` // version
	// Recomputing is the first column that a recompute still has to fill.
	Recomputing string `json:"recomputing,omitempty"`
}

// A Delete is an unfinished delete: queries no longer see its rows, but files may still
// contain them.
type Delete struct {
	Number      uint64    `json:"number"`
	Table       string    `json:"table"`
	Where       string    `json:"where"` // condition in SQL
	RequestedAt time.Time `json:"asked"`
	// Lake names what in the lake may still contain the rows after the store removed them.
	// Until is the time of the next check.
	Lake  string    `json:"lake,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Error says why the last file in the lake could not be fetched, to rewrite it without the rows.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// A Recompute fills a computed column, file by file, for the rows that the table had when the
// recompute was requested.
type Recompute struct {
	Number      uint64    `json:"number"`
	Table       string    `json:"table"`
	Column      string    `json:"column"`
	RequestedAt time.Time `json:"asked"`
	Ended       time.Time `json:"ended,omitzero"` // zero while it runs
	Rows        int64     `json:"rows"`           // computed so far
	Failed      int64     `json:"failed_rows"`    // part of Rows: null because the function failed
	// Error is the first error of the function or, if Stopped, the reason that the
	// recompute ended early.
	Error   string `json:"error,omitempty"`
	Stopped bool   `json:"stopped,omitempty"`
	// While it runs: the files of the table, the number of finished ones, and whether
	// affected rows are still in the log.
	Files int  `json:"files,omitempty"`
	Done  int  `json:"files_done,omitempty"`
	InLog bool `json:"in_log,omitempty"`
	// Idle reports that the recompute makes no progress because this process does not
	// compute the column.
	Idle bool `json:"idle,omitempty"`
}

// Unique drops a row if a row with the same key arrived less than Window before it. It serves
// producers that resend events which were not acknowledged. A row with a null key column is
// never dropped.
type Unique struct {
	// Key names declared columns, not of type float64, decimal or json.
	Key    []string `json:"key" yaml:"key,required" example:"[id]" help:"declared columns that identify an event"`
	Window Duration `json:"window" yaml:"window,required" example:"1d" help:"time since the arrival of the event with the same key"` // whole seconds
	// Memory is the maximum memory for the keys of a window, in bytes. Appends fail while
	// it is exceeded.
	Memory int64 `json:"memory" yaml:"memory,size" default:"256MiB" example:"1GiB" help:"memory limit of the keys of a window, 18 to 28 bytes each"`
}

// A Lake is where a table is published as an Iceberg table, for other engines to read.
type Lake struct {
	Warehouse string `json:"warehouse" yaml:"warehouse,required" pattern:"^(/|s3://)[A-Za-z0-9/._~+=@,:-]*$" example:"s3://bucket/lake" help:"folder, or s3://BUCKET/PREFIX, for the files"`
	Catalog   string `json:"catalog,omitempty" yaml:"catalog" pattern:"^$|^(https?|postgres|postgresql|sqlite):" default:"(the folder)" example:"http://127.0.0.1:8181" help:"catalog with the table, which a bucket needs: address of a REST catalog (http, https), or of a database (postgres://…, sqlite:///…)"`
	Table     string `json:"table,omitempty" yaml:"table" pattern:"^$|^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)+$" default:"(perigee.NAME)" example:"sales.mails" help:"namespace and name of the table in the catalog; a table that is renamed keeps the default"`
	// Local is the age, by event time, at which data leave the disk; 0 keeps them.
	Local Duration `json:"local,omitempty" yaml:"local" pattern:"[1-9]" default:"(all stays)" example:"7d" help:"age, by the event's own time, after which data leave this disk once the lake has them; queries fetch them when they need them"`
}

// IsAt reports whether l and other are the same table of the same lake.
func (l Lake) IsAt(other Lake) bool {
	l.Local, other.Local = 0, 0
	return l == other
}

// DefaultLakeTable returns the name in the lake of a table whose configuration has none.
func DefaultLakeTable(table string) string { return "perigee." + table }

// Shares reports whether l and other may be the same table of the same catalog: some catalogs ignore
// the case of names. The tables of all folders without a catalog are in that of the engine. A REST
// catalog may have the name once for each warehouse.
func (l Lake) Shares(other Lake) bool {
	isREST := strings.HasPrefix(l.Catalog, "http")
	return strings.EqualFold(l.Table, other.Table) && plainAddress(l.Catalog) == plainAddress(other.Catalog) && (!isREST || plainAddress(l.Warehouse) == plainAddress(other.Warehouse))
}

// plainAddress returns the same text for the usual spellings of one address.
func plainAddress(address string) string {
	scheme, rest, found := strings.Cut(address, ":")
	if !found {
		return path.Clean(address)
	}
	if scheme == "postgresql" {
		scheme = "postgres"
	}
	host, rest, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
	if scheme == "sqlite" {
		return path.Clean("/" + host + "/" + rest)
	}
	return scheme + "://" + strings.ToLower(host) + path.Clean("/"+rest)
}

// A UniqueState describes the keys that a table has seen.
type UniqueState struct {
	Unique
	Keys     int    `json:"keys"`          // in memory; some may have left the window
	Bytes    int64  `json:"bytes"`         // memory that the keys take
	Repeated uint64 `json:"repeated_rows"` // rows dropped since the store was opened
}

// Unknown selects the handling of fields without a column.
type Unknown string

const (
	AddUnknown  Unknown = ""     // infer a column for each
	KeepUnknown Unknown = "keep" // keep them in the JSON column _rest
	DropUnknown Unknown = "drop" // do not store them
)

// UnmarshalText implements encoding.TextUnmarshaler. AddUnknown may also be written as add.
func (u *Unknown) UnmarshalText(text []byte) error {
	switch v := Unknown(text); v {
	case AddUnknown, KeepUnknown, DropUnknown:
		*u = v
	case "add":
		*u = AddUnknown
	default:
		return fmt.Errorf("invalid treatment of undeclared fields %q: use add, keep or drop", text)
	}
	return nil
}

// RestColumn is the column that holds a row's fields without a column, as one JSON object.
const RestColumn = "_rest"

// A Duration is a time.Duration that encodes as text, such as 720h0m0s.
type Duration time.Duration

// String returns the text of time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// A RejectedRow is a row that is not a JSON object or does not fit a declared column.
type RejectedRow struct {
	Row    int    `json:"row"`              // index in the output
	Column string `json:"column,omitempty"` // column that rejects the row; empty if the row is not an object
	Reason string `json:"reason"`
}

// A TailRequest selects the rows of a tail.
type TailRequest struct {
	Table string `json:"table"`
	Where string `json:"where,omitempty"` // condition in SQL; empty for all rows
	// Since is the minimum event time of existing rows to send first, limited to the
	// newest 10,000. Zero sends none.
	Since  time.Time `json:"since,omitzero"`
	Client string    `json:"-"` // the client, for SHOW QUERIES
}

// A TailBatch is a batch of rows that were appended to a table.
type TailBatch struct {
	Columns []Column `json:"columns"`
	Rows    []byte   `json:"-"`     // one JSON object per line
	Count   int      `json:"count"` // number of rows
	// Skipped reports that rows before these were skipped: the reader was too slow, or
	// there were too many rows.
	Skipped bool `json:"skipped,omitempty"`
}

// A FunctionGroup is a group of SQL functions that queries may call.
type FunctionGroup struct {
	Name  string
	Names []string
}

// A Macro is an SQL function that is written in SQL.
type Macro struct {
	Call string // such as time_buckets(width, first, until)
	Doc  string
}
