//go:build linux && cgo

package sqlworker

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// Rows is the result of a query. It is for one goroutine at a time, and must be closed.
type Rows struct {
	answer *answer
	stop   context.CancelFunc // of the time limit
	closed bool

	columns []protocol.Column
	types   []protocol.Type
	rest    int // bytes of the current piece of the stream that have not been read
	end     error
	outcome protocol.Outcome

	stream *ipc.Reader
	batch  arrow.RecordBatch
	next   int // row of the batch
	row    []any
	err    error
}

// readColumns reads the beginning of the answer.
func (r *Rows) readColumns() error {
	kind, text, err := r.answer.in.Read()
	for err == nil && kind == protocol.CallMessage {
		if err = r.answer.answerCall(text); err == nil {
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
	r.columns = []protocol.Column{}
	for _, c := range columns {
		r.columns = append(r.columns, protocol.Column{Name: c.Name, Type: c.Type.Name})
		r.types = append(r.types, c.Type)
	}
	return nil
}

// Read reads the stream out of the messages. It implements io.Reader for the decoder
// of the stream.
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

// readCall answers a call.
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
func (r *Rows) Columns() []protocol.Column { return r.columns }

// Next goes to the next row and reports whether there is one.
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
	_, err := io.Copy(io.Discard, r) // to the end, which says whether the rows are whole
	r.fail(err)
	return false
}

// fail ends the answer. The decoder of Arrow wraps or drops what Read said.
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
		err = &protocol.QueryError{Message: "another query ended the process that ran this one", Hint: "run it again"}
	}
	return err
}

// Row returns the row that Next went to. It belongs to the caller.
func (r *Rows) Row() []any { return r.row }

// Err says why Next returned false; nil at the end of the result.
func (r *Rows) Err() error { return r.err }

// Truncated reports whether there were more rows than Limits.Rows, once Next has returned
// false.
func (r *Rows) Truncated() bool { return r.outcome.Truncated }

// WriteStream writes the rows as an Arrow IPC stream, or as the Parquet file that
// Query.Parquet asked for. It is called instead of Next.
func (r *Rows) WriteStream(w io.Writer) error {
	_, err := io.Copy(w, struct{ io.Reader }{r})
	if r.end == nil { // the writer failed
		return err
	}
	r.fail(err)
	return r.err
}

// Close ends the query. No file of the store is read for it afterwards.
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
