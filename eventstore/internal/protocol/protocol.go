// Package protocol has what an event store and its SQL workers send each other: the settings of a
// worker, requests, answers, values and errors. It knows neither DuckDB nor processes, and builds
// without cgo.
//
// Readers are for one goroutine; a Writer is safe for concurrent use.
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

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// A Kind is the kind of a message: 1 byte, before a length of 4 bytes and that many bytes.
//
// Each request has a socket of its own, which the parent passes to the worker. The parent sends a
// request, rows of external tables, and EndOfRequest. The worker answers with BegunMessage, the columns
// and a stream of rows if there are any, and DoneMessage or FailedMessage, and closes the socket. The
// parent closes its half for writing to cancel the request. The worker may call functions of the parent
// before and in the stream, one call at a time, and waits for the values.
type Kind byte

const (
	// From the parent.
	RequestMessage Kind = iota + 1 // JSON of a request
	RowsMessage                    // the index of an external table (4 bytes), and rows in JSON
	EndOfRequest
	ValuesMessage // an error (1 byte, 0 or 1) and the texts that a function has for a call, or of the error
	// From the worker.
	BegunMessage   // the worker has read the request: from now on it may be to blame for the worker's end
	ColumnsMessage // JSON of []ResultColumn
	StreamMessage  // a piece of an Arrow IPC stream, or of a Parquet file
	FilesMessage   // JSON of []Written
	DoneMessage    // JSON of Outcome
	FailedMessage  // JSON of Failure
	CallMessage    // the index of a function (4 bytes) and the documents that it is called with
)

const (
	HeadBytes = 5
	MaxBytes  = 64 << 20
)

// ErrCanceled says that the parent no longer wants the answer.
var ErrCanceled = errors.New("canceled")

// ErrInvalidMessage says that a peer sends what it never should.
var ErrInvalidMessage = errors.New("sqlworker: invalid message")

// A Writer writes messages, also of several goroutines.
type Writer struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewWriter returns a Writer with a buffer, which Flush writes out.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 64<<10)}
}

// Write writes a message whose body is the parts in order.
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

// WriteJSON writes a message whose body is a value in JSON.
func (m *Writer) WriteJSON(kind Kind, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return m.Write(kind, text)
}

// Flush writes what is buffered.
func (m *Writer) Flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Flush()
}

// A Reader reads messages. It is for one goroutine.
type Reader struct{ Buffered *bufio.Reader }

// NewReader returns a Reader with a buffer.
func NewReader(r io.Reader) *Reader {
	return &Reader{bufio.NewReaderSize(r, 64<<10)}
}

// ReadHead reads the head of a message, whose bytes the caller then reads.
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

// Read reads a message. A stream that ends before its last message fails with io.ErrUnexpectedEOF.
func (m *Reader) Read() (Kind, []byte, error) {
	kind, size, err := m.ReadHead()
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, size)
	_, err = io.ReadFull(m.Buffered, body)
	return kind, body, NoEOF(err)
}

// NoEOF is for a stream that ends before its last message.
func NoEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A Request is what a worker is asked. One of the pointers is set.
type Request struct {
	Query     *Query     `json:",omitempty"`
	Segment   *Segment   `json:",omitempty"`
	Merge     *Merge     `json:",omitempty"`
	Recompute *Recompute `json:",omitempty"`
	Check     *Check     `json:",omitempty"`
	Tail      *Tail      `json:",omitempty"`
	Read      *Read      `json:",omitempty"`

	Stays bool `json:"-"` // in its worker, however long it waits for rows: it has left another one already
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

// Limits bound a query. Zero values are defaults.
type Limits struct {
	Rows   int64         // of the result, which is cut off there; default: no limit
	Time   time.Duration // default 30 s
	Memory int64         // bytes; default 256 MiB
}

const (
	TimeDefault   = 30 * time.Second
	MemoryDefault = 256 << 20
)

// A Function is a function of SQL whose values the parent computes, as a script does. It takes
// a row: a table's name or alias, or any struct.
type Function struct {
	Name string
	Type string // of SQL
	// Call returns the value of each document as text that casts to Type, nil for NULL. Its
	// error ends the query. Queries call it at the same time.
	Call func(ctx context.Context, documents [][]byte) ([][]byte, error) `json:"-"`
}

// An ExternalTable is a table whose rows follow the request.
type ExternalTable struct {
	Name    string
	Columns []Column
}

// A Column is a column of a result.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // as SQL knows it
}

// A ResultColumn is a column of an answer.
type ResultColumn struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
}

// A Segment asks for Parquet files of all rows of one closed file of the log.
type Segment struct {
	Version uint64 // of the manifest
	Log     wal.FileEnd
	Number  uint64 // of the segment
	Wide    bool   // see ErrMemory
}

// A Recompute asks for a file with other values in one column, without the rows that are
// deleted, or for its rows divided by the days of the table's time column.
type Recompute struct {
	Version uint64 // of the manifest
	Table   uint32
	File    string  // its name in the manifest
	Number  uint64  // of the new segment
	Column  int32   // its ID; 0 divides the rows
	Hidden  []int32 // columns that Call does not see
	Wide    bool    // see ErrMemory
	// Call returns the value of each document as text that casts to the column's type, nil for
	// NULL. A document is a row, as the event was that it comes from. If the writing of the file
	// begins again, the attempt is another one. It is called once at a time.
	Call func(ctx context.Context, attempt int, documents [][]byte) ([][]byte, error) `json:"-"`
}

// Attempt is the number of the first attempt to write the file, or of the second.
func (q *Recompute) Attempt() int {
	if q.Wide {
		return 2
	}
	return 1
}

// A Merge asks for one file for each group of files, which are of one table and day.
type Merge struct {
	Version uint64
	Table   uint32
	Groups  [][]string // names of files in the manifest
	Number  uint64     // of the new segment
	Wide    bool       // see ErrMemory
}

// A Merged is what has become of a group of files.
type Merged struct {
	// File has the rows of the group that are not deleted, and is durable. It is nil if no
	// row is left.
	File *manifest.File `json:",omitempty"`
	// Unchanged says that the group is one file of which no row is deleted.
	Unchanged bool `json:",omitempty"`
}

// A Check asks whether a predicate is fit for a delete.
type Check struct {
	Version   uint64
	Table     uint32
	Predicate string
}

// A Tail asks for the next rows of a table in the log.
type Tail struct {
	Version uint64        // of the manifest
	Ends    []wal.FileEnd // up to where the log is acknowledged
	Table   uint32
	From    manifest.Position // of the first frame whose rows are wanted; its file must be there
	Where   string            // predicate that CheckPredicate takes, or ""
}

// A Read asks for the rows of SQL that comes from the program itself. It is not
// checked, and may read Options.File.
type Read struct{ SQL string }

// A Written is a file that was written, and is durable.
type Written struct {
	Table uint32
	File  manifest.File
}

// An Outcome ends an answer.
type Outcome struct {
	Truncated bool `json:",omitempty"`

	Next manifest.Position `json:",omitzero"` // see Rows.Position
}

// A Failure is an error of the worker.
type Failure struct {
	Query    *QueryError `json:",omitempty"` // what is wrong with the SQL
	Canceled bool        `json:",omitempty"` // by the parent
	Memory   bool        `json:",omitempty"` // see ErrMemory
	Message  string      `json:",omitempty"` // any other error
}

// NewFailure returns an error as a worker answers it.
func NewFailure(err error) Failure {
	if q, ok := errors.AsType[*QueryError](err); ok {
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

// A JSONParam is a Param in a request. One of the pointers is set, or none for null.
type JSONParam struct {
	Name  string     `json:",omitempty"`
	Bool  *bool      `json:",omitempty"`
	Int   *int64     `json:",omitempty"`
	Float *string    `json:",omitempty"` // infinity and NaN are no JSON
	Text  *string    `json:",omitempty"`
	Bytes *[]byte    `json:",omitempty"`
	Time  *time.Time `json:",omitempty"`
	Nanos *int64     `json:",omitempty"` // of a TimestampNS
}
