//go:build linux && cgo

package sqlworker

import (
	"bufio"
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

// Each request has a socket of its own, which the parent passes to the worker. The parent
// sends a request, rows of external tables, and endOfRequest. The worker answers with begun,
// with one answer, with a stream if there are rows, and with done or failed, and closes the socket. The
// parent closes its half for writing to cancel the request. Before and in the stream the worker may call functions of the parent, one call
// at a time, and waits for the values.
//
// A message is a kind (1 byte), a length (4 bytes) and so many bytes.
type messageKind byte

const (
	// From the parent.
	requestMessage messageKind = iota + 1 // JSON of a request
	rowsMessage                           // the index of an external table (4 bytes), and rows in JSON
	endOfRequest
	valuesMessage // an error (1 byte, 0 or 1) and the texts that a function has for a call, or of the error
	// From the worker.
	begunMessage   // the worker has read the request: from now on it may be to blame for the worker's end
	columnsMessage // JSON of []resultColumn
	streamMessage  // a piece of an Arrow IPC stream, or of a Parquet file
	filesMessage   // JSON of []Written
	doneMessage    // JSON of outcome
	failedMessage  // JSON of failure
	callMessage    // the index of a function (4 bytes) and the documents that it is called with
)

const (
	messageHead = 5
	messageMax  = 64 << 20
)

// errCanceled says that the parent no longer wants the answer.
var errCanceled = errors.New("canceled")

// errMessage says that a peer sends what it never should.
var errMessage = errors.New("sqlworker: invalid message")

// A messageWriter writes messages, also of several goroutines.
type messageWriter struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newMessageWriter(w io.Writer) *messageWriter {
	return &messageWriter{w: bufio.NewWriterSize(w, 64<<10)}
}

func (m *messageWriter) write(kind messageKind, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var head [messageHead]byte
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

func (m *messageWriter) writeJSON(kind messageKind, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return m.write(kind, text)
}

func (m *messageWriter) flush() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.w.Flush()
}

// A messageReader reads messages. It is for one goroutine.
type messageReader struct{ r *bufio.Reader }

func newMessageReader(r io.Reader) *messageReader {
	return &messageReader{bufio.NewReaderSize(r, 64<<10)}
}

// readHead reads the head of a message, whose bytes the caller then reads.
func (m *messageReader) readHead() (messageKind, int, error) {
	var head [messageHead]byte
	if _, err := io.ReadFull(m.r, head[:]); err != nil {
		return 0, 0, noEOF(err)
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > messageMax {
		return 0, 0, errMessage
	}
	return messageKind(head[0]), int(size), nil
}

func (m *messageReader) read() (messageKind, []byte, error) {
	kind, size, err := m.readHead()
	if err != nil {
		return 0, nil, err
	}
	body := make([]byte, size)
	_, err = io.ReadFull(m.r, body)
	return kind, body, noEOF(err)
}

// noEOF is for a stream that ends before its last message.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A request is what a worker is asked. One of the pointers is set.
type request struct {
	Query     *queryRequest `json:",omitempty"`
	Segment   *Segment      `json:",omitempty"`
	Merge     *Merge        `json:",omitempty"`
	Recompute *Recompute    `json:",omitempty"`
	Check     *checkRequest `json:",omitempty"`
	Tail      *Tail         `json:",omitempty"`
	Read      *readRequest  `json:",omitempty"`

	stays bool // in its worker, however long it waits for rows: it has left another one already
}

type queryRequest struct {
	Version  uint64
	Ends     []wal.FileEnd
	SQL      string
	Params   []jsonParam
	Limits   Limits
	External []externalTable
	Parquet  bool `json:",omitempty"`
}

// Limits bound a query. Zero values are defaults.
type Limits struct {
	Rows   int64         // of the result, which is cut off there; default: no limit
	Time   time.Duration // default 30 s
	Memory int64         // bytes; default 256 MiB
}

const (
	timeDefault   = 30 * time.Second
	memoryDefault = 256 << 20
)

type externalTable struct {
	Name    string
	Columns []Column
}

// A Column is a column of a result.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // as SQL knows it
}

type resultColumn struct {
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

// A checkRequest asks whether a predicate is fit for a delete.
type checkRequest struct {
	Version   uint64
	Table     uint32
	Predicate string
}

// A Written is a file that was written, and is durable.
type Written struct {
	Table uint32
	File  manifest.File
}

// An outcome ends an answer.
type outcome struct {
	Truncated bool `json:",omitempty"`

	Next manifest.Position `json:",omitzero"` // see Rows.Position
}

// A failure is an error of the worker.
type failure struct {
	Query    *QueryError `json:",omitempty"` // what is wrong with the SQL
	Canceled bool        `json:",omitempty"` // by the parent
	Memory   bool        `json:",omitempty"` // see ErrMemory
	Message  string      `json:",omitempty"` // any other error
}

func newFailure(err error) failure {
	if q, ok := errors.AsType[*QueryError](err); ok {
		return failure{Query: q}
	}
	return failure{Message: err.Error(), Canceled: errors.Is(err, errCanceled), Memory: errors.Is(err, ErrMemory)}
}

func (f failure) error() error {
	switch {
	case f.Query != nil:
		return f.Query
	case f.Canceled:
		return errCanceled
	case f.Memory:
		return fmt.Errorf("%s%w", strings.TrimSuffix(f.Message, ErrMemory.Error()), ErrMemory)
	}
	return fmt.Errorf("eventstore: %s", f.Message)
}

// A jsonParam is a Param in a request. One of the pointers is set, or none for null.
type jsonParam struct {
	Name  string     `json:",omitempty"`
	Bool  *bool      `json:",omitempty"`
	Int   *int64     `json:",omitempty"`
	Float *string    `json:",omitempty"` // infinity and NaN are no JSON
	Text  *string    `json:",omitempty"`
	Bytes *[]byte    `json:",omitempty"`
	Time  *time.Time `json:",omitempty"`
	Nanos *int64     `json:",omitempty"` // of a TimestampNS
}
