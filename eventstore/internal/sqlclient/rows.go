//go:build linux

package sqlclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Rows is the result of a query. It is not safe for concurrent use and must be closed.
type Rows struct {
	answer *answer
	stop   context.CancelFunc // releases the time limit
	closed bool

	columns []catalog.Column
	types   []protocol.Type
	rest    int // unread bytes of the current stream message
	end     error
	outcome protocol.Outcome

	stream *ipc.Reader
	batch  arrow.RecordBatch
	next   int // next row of the batch
	row    []any
	err    error
}

// readColumns reads the beginning of the answer.
func (r *Rows) readColumns() error {
	kind, text, err := r.answer.in.Read()
	for err == nil && (kind == protocol.CallMessage || kind == protocol.FilesNeeded) {
		if kind == protocol.CallMessage {
			err = r.answer.answerCall(text)
		} else {
			err = r.answer.fetchFiles(text)
		}
		if err == nil {
			kind, text, err = r.answer.in.Read()
		}
	}
	if err != nil {
		return err
	}
	if kind == protocol.DoneMessage { // an answer without rows
		r.end = io.EOF
		return json.Unmarshal(text, &r.outcome)
	}
	if kind != protocol.ColumnsMessage {
		return endOf(kind, text)
	}
	var columns []protocol.ResultColumn
	if err := json.Unmarshal(text, &columns); err != nil {
		return err
	}
	r.columns = []catalog.Column{}
	for _, c := range columns {
		r.columns = append(r.columns, catalog.Column{Name: c.Name, Type: c.Type.Name})
		r.types = append(r.types, c.Type)
	}
	return nil
}

// Read reads the stream contained in the messages. It implements io.Reader for the stream's
// decoder.
func (r *Rows) Read(b []byte) (int, error) {
	for r.rest == 0 {
		if r.end != nil {
			return 0, r.end
		}
		kind, size, err := r.answer.in.ReadHead()
		switch {
		case err != nil:
			r.end = err
		case kind == protocol.StreamMessage:
			r.rest = size
		case kind == protocol.CallMessage:
			r.end = r.readCall(size)
		default:
			r.end = r.readEnd(kind, size)
		}
	}
	n, err := r.answer.in.Buffered.Read(b[:min(len(b), r.rest)])
	r.rest -= n
	if err != nil {
		r.end = protocol.NoEOF(err)
		return n, r.end
	}
	return n, nil
}

// readCall answers a function call.
func (r *Rows) readCall(size int) error {
	body := make([]byte, size)
	if _, err := io.ReadFull(r.answer.in.Buffered, body); err != nil {
		return protocol.NoEOF(err)
	}
	return r.answer.answerCall(body)
}

// readEnd reads the message that ends the answer.
func (r *Rows) readEnd(kind protocol.Kind, size int) error {
	text := make([]byte, size)
	if _, err := io.ReadFull(r.answer.in.Buffered, text); err != nil {
		return protocol.NoEOF(err)
	}
	if kind == protocol.DoneMessage {
		if err := json.Unmarshal(text, &r.outcome); err != nil {
			return err
		}
	}
	return endOf(kind, text)
}

// Columns describes the columns.
func (r *Rows) Columns() []catalog.Column { return r.columns }

// Next advances to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	if r.closed || r.err != nil {
		return false
	}
	for r.batch == nil || r.next == int(r.batch.NumRows()) {
		if !r.fetch() {
			return false
		}
	}
	r.row = make([]any, len(r.types))
	for i := range r.types {
		r.row[i] = r.types[i].Decode(r.batch.Column(i), r.next)
	}
	r.next++
	return true
}

// fetch reads the next batch.
func (r *Rows) fetch() bool {
	r.batch, r.next = nil, 0
	if r.stream == nil {
		if r.stream, r.err = ipc.NewReader(r); r.err != nil {
			r.fail(r.err)
			return false
		}
	}
	if r.stream.Next() {
		r.batch = r.stream.RecordBatch()
		return true
	}
	r.err = nil
	if err := r.stream.Err(); err != nil {
		r.fail(err)
		return false
	}
	_, err := io.Copy(io.Discard, r) // the end tells whether the rows are complete
	r.fail(err)
	return false
}

// fail ends the answer. It prefers the error of Read, which the Arrow decoder wraps or drops.
func (r *Rows) fail(err error) {
	if r.end != nil {
		err = r.end
	}
	if err == nil {
		err = io.EOF
	}
	r.err = r.finish(err)
}

func (r *Rows) finish(err error) error {
	err = r.answer.finish(err)
	if errors.Is(err, errWorkerLost) {
		err = &event.Fault{Message: "another query ended the process that ran this one", Hint: "run it again"}
	}
	return err
}

// Row returns the current row. The caller owns it.
func (r *Rows) Row() []any { return r.row }

// Err returns the error that ended the rows, or nil at the end of the result.
func (r *Rows) Err() error { return r.err }

// Truncated reports whether the result had more rows than Limits.Rows. It is valid once Next
// has returned false.
func (r *Rows) Truncated() bool { return r.outcome.Truncated }

// WriteStream writes the rows as an Arrow IPC stream, or as a Parquet file if Query.Parquet
// is set. Call it instead of Next.
func (r *Rows) WriteStream(w io.Writer) error {
	_, err := io.Copy(w, struct{ io.Reader }{r})
	if r.end == nil { // the writer failed
		return err
	}
	r.fail(err)
	return r.err
}

// Close ends the query. When it returns, the query reads no more files of the store.
func (r *Rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	_ = r.finish(nil)
	if r.stream != nil {
		r.stream.Release()
	}
	r.stop()
	return nil
}

// Position returns the position at which the next Tail continues. It is valid once Next has
// returned false without an error.
func (r *Rows) Position() wal.Position { return r.outcome.Next }
