// Package protocol defines the messages between an event store and its SQL workers: the
// settings of a worker, requests, answers, values and errors. It depends neither on DuckDB
// nor on processes, and builds without cgo.
//
// A Reader is not safe for concurrent use; a Writer is.
package protocol

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Kind is the kind of a message. A message is a kind of 1 byte, a length of 4 bytes, and a
// body of that length.
//
// Each request has its own socket, which the parent passes to the worker. The parent sends a
// request, rows of external tables, and EndOfRequest. The worker sends BegunMessage, the
// columns and a stream of rows if the answer has any, and then DoneMessage or FailedMessage,
// and closes the socket. To cancel the request, the parent closes its side for writing.
// Before and during the stream, the worker may call functions of the parent, one call at a
// time, and waits for the values. Before the columns, it may ask for files of a lake, which the
// parent fetches: the worker has no network.
type Kind byte

const (
	// Sent by the parent.
	RequestMessage Kind = iota + 1 // a Request in JSON
	RowsMessage                    // index of an external table (4 bytes), and rows in JSON
	EndOfRequest
	ValuesMessage // error flag (1 byte, 0 or 1), then the results of a call or the error text
	FilesHere     // answers FilesNeeded: nothing, or a Failure in JSON
	// Sent by the worker.
	BegunMessage   // the worker has read the request, which may be the cause if the worker crashes from now on
	ColumnsMessage // []ResultColumn in JSON
	StreamMessage  // part of an Arrow IPC stream or of a Parquet file
	FilesMessage   // []Written in JSON
	DoneMessage    // an Outcome in JSON
	FailedMessage  // a Failure in JSON
	CallMessage    // index of a function (4 bytes), and the documents to call it with
	FilesNeeded    // []NeededFile in JSON: all files that a query reads next whose data may be in a lake
)

const (
	HeadBytes = 5
	MaxBytes  = 64 << 20
)

// ErrCanceled reports that the parent canceled the request.
var ErrCanceled = errors.New("canceled")

// ErrInvalidMessage reports a message that violates the protocol.
var ErrInvalidMessage = errors.New("sqlworker: invalid message")

// A Writer writes messages. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewWriter returns a buffered Writer. Flush writes the buffer out.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 64<<10)}
}

// Write writes a message; its body is the concatenation of parts.
func (m *Writer) Write(kind Kind, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var head [HeadBytes]byte
	head[0] = byte(kind)
	binary.LittleEndian.PutUint32(head[1:], uint32(size))
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.w.Write(head[:]); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := m.w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a message with a value in JSON as its body.
func (m *Writer) WriteJSON(kind Kind, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return m.Write(kind, text)
}

// Flush writes buffered data.
func (m *Writer) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Flush()
}

// A Reader reads messages. It is not safe for concurrent use.
type Reader struct{ Buffered *bufio.Reader }

// NewReader returns a buffered Reader.
func NewReader(r io.Reader) *Reader {
	return &Reader{bufio.NewReaderSize(r, 64<<10)}
}

// ReadHead reads the head of a message. The caller then reads the body.
func (m *Reader) ReadHead() (Kind, int, error) {
	var head [HeadBytes]byte
	if _, err := io.ReadFull(m.Buffered, head[:]); err != nil {
		return 0, 0, NoEOF(err)
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > MaxBytes {
		return 0, 0, ErrInvalidMessage
	}
	return Kind(head[0]), int(size), nil
}

// Read reads a message. It returns io.ErrUnexpectedEOF if the stream ends before the last
// message.
func (m *Reader) Read() (Kind, []byte, error) {
	kind, size, err := m.ReadHead()
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, size)
	_, err = io.ReadFull(m.Buffered, body)
	return kind, body, NoEOF(err)
}

// NoEOF converts io.EOF to io.ErrUnexpectedEOF, for a stream that ended before its last
// message.
func NoEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A Request is a request to a worker. Exactly one of the pointers is set.
type Request struct {
	Query     *Query     `json:",omitempty"`
	Segment   *Segment   `json:",omitempty"`
	Merge     *Merge     `json:",omitempty"`
	Recompute *Recompute `json:",omitempty"`
	Check     *Check     `json:",omitempty"`
	Tail      *Tail      `json:",omitempty"`
	Read      *Read      `json:",omitempty"`

	Stays bool `json:"-"` // keep the query in its worker, however long it waits for rows: it has already left another one

	// Fetch answers FilesNeeded.
	Fetch func(ctx context.Context, files []NeededFile) error `json:"-"`
}

// A Query is a statement and the version of the data that it reads.
type Query struct {
	Version  uint64
	Ends     []wal.FileEnd
	SQL      string
	Params   []JSONParam
	Limits   Limits
	External []ExternalTable
	Parquet  bool `json:",omitempty"`
}

// Limits bound a query. Zero fields use the defaults.
type Limits struct {
	Rows   int64         // maximum rows of the result, which is truncated; default: no limit
	Time   time.Duration // default catalog.DefaultQueryTime
	Memory int64         // bytes; default catalog.DefaultQueryMemory
}

// WithTimeLimit returns a context that is canceled when a query exceeds its time limit.
func WithTimeLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &event.Fault{
		Message: "the query took longer than " + limit.String(), Hint: "narrow it by time",
	})
}

// A NeededFile is a file that a query reads. It must stay on disk until the query ends or asks
// for other files.
type NeededFile struct {
	Table uint32 `json:"table"`
	Name  string `json:"name"`
}

// A Function is an SQL function that the parent computes, for example with a script. It takes
// a row: a table's name or alias, or any struct.
type Function struct {
	Name string
	Type string // SQL type
	// Call returns the value of each document as text that casts to Type, nil for NULL.
	// An error ends the query. Call must be safe for concurrent use.
	Call func(ctx context.Context, documents [][]byte) ([][]byte, error) `json:"-"`
}

// An ExternalTable is a table whose rows follow the request.
type ExternalTable struct {
	Name    string
	Columns []catalog.Column
}

// A ResultColumn is a column of an answer.
type ResultColumn struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
}

// A Segment requests Parquet files of all rows of one closed log file.
type Segment struct {
	Version   uint64 // of the manifest
	Log       wal.FileEnd
	Number    uint64 // of the segment
	LowMemory bool   // see ErrMemory
}

// A Recompute requests a rewrite of a file without its deleted rows, either with new values
// in one column or divided by the days of the table's time column.
type Recompute struct {
	Version   uint64 // of the manifest
	Table     uint32
	File      string  // name in the manifest
	Number    uint64  // of the new segment
	Column    int32   // column ID; 0 divides the rows by day
	Hidden    []int32 // IDs of columns that Call does not see
	LowMemory bool    // see ErrMemory
	// Call returns the value of each document as text that casts to the column's type,
	// nil for NULL. A document is a row in the form of its original event. If writing the
	// file restarts, attempt changes. Calls are not concurrent.
	Call func(ctx context.Context, attempt int, documents [][]byte) ([][]byte, error) `json:"-"`
}

// Attempt returns the number of the attempt to write the file: 1, or 2 if LowMemory.
func (q *Recompute) Attempt() int {
	if q.LowMemory {
		return 2
	}
	return 1
}

// A Merge requests one file for each group of files. The files of a group are of one table
// and day.
type Merge struct {
	Version   uint64
	Table     uint32
	Groups    [][]string // names of files in the manifest
	Number    uint64     // of the new segment
	LowMemory bool       // see ErrMemory
	All       bool       // also write single files without deleted rows again
}

// A Merged is the result of merging a group of files.
type Merged struct {
	// File has the group's rows that are not deleted, and is durable. It is nil if no
	// rows remain.
	File *manifest.File `json:",omitempty"`
	// Unchanged reports that the group is a single file without deleted rows, and Merge.All
	// is not set.
	Unchanged bool `json:",omitempty"`
}

// A Check asks whether a predicate is valid for a delete.
type Check struct {
	Version   uint64
	Table     uint32
	Predicate string
}

// TailTime is the time limit of a Tail.
const TailTime = 30 * time.Second

// A Tail requests the next rows of a table in the log.
type Tail struct {
	Version uint64        // of the manifest
	Ends    []wal.FileEnd // acknowledged ends of the log files
	Table   uint32
	From    wal.Position // first frame to read; its file must exist
	Where   string       // predicate that passes CheckPredicate, or ""
}

// A Read requests the rows of trusted SQL from the program itself. The SQL is not checked and
// may read Options.File.
type Read struct{ SQL string }

// A Written is a file that was written and is durable.
type Written struct {
	Table uint32
	File  manifest.File
}

// An Outcome ends an answer.
type Outcome struct {
	Truncated bool `json:",omitempty"`

	Next wal.Position `json:",omitzero"` // see Rows.Position
}

// A Failure is an error of the worker.
type Failure struct {
	Query    *event.Fault `json:",omitempty"` // an error in the SQL
	Canceled bool         `json:",omitempty"` // canceled by the parent
	Memory   bool         `json:",omitempty"` // see ErrMemory
	Message  string       `json:",omitempty"` // any other error
}

// NewFailure converts an error to the Failure that a worker sends.
func NewFailure(err error) Failure {
	if q, ok := errors.AsType[*event.Fault](err); ok {
		return Failure{Query: q}
	}
	return Failure{Message: err.Error(), Canceled: errors.Is(err, ErrCanceled), Memory: errors.Is(err, ErrMemory)}
}

// Err returns the error that a failure carries.
func (f Failure) Err() error {
	switch {
	case f.Query != nil:
		return f.Query
	case f.Canceled:
		return ErrCanceled
	case f.Memory:
		return fmt.Errorf("%s%w", strings.TrimSuffix(f.Message, ErrMemory.Error()), ErrMemory)
	}
	return fmt.Errorf("eventstore: %s", f.Message)
}

// A JSONParam is a Param in a request. At most one of the pointers is set; none means null.
type JSONParam struct {
	Name  string     `json:",omitempty"`
	Bool  *bool      `json:",omitempty"`
	Int   *int64     `json:",omitempty"`
	Float *string    `json:",omitempty"` // as text, since JSON has no infinity and NaN
	Text  *string    `json:",omitempty"`
	Bytes *[]byte    `json:",omitempty"`
	Time  *time.Time `json:",omitempty"`
	Nanos *int64     `json:",omitempty"` // of a TimestampNS
}
