//go:build linux && cgo

package sqlworker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Options are the settings of a Client.
type Options struct {
	Folder  string // of the store
	Memory  int64  // bytes that all workers together may need; default 512 MiB
	Threads int    // that one query may use; default: one per core
	File    string // absolute path of a file that Read may read; default none
	// RowGroup is how many rows the row groups of written files have; default 16,384.
	RowGroup int
	Log      *slog.Logger
}

const (
	workerMemoryDefault = 512 << 20
	// writerMemory is what each of the two workers that write files may need, which counts
	// against Options.Memory, and queriesMemoryMin what is left at least for queries.
	writerMemory     = 128 << 20
	wideMemory       = 3 * writerMemory // of one that writes wide rows alone
	queriesMemoryMin = 128 << 20
	// idleTime is how long a worker without requests stays, and writerIdleTime one that
	// writes files.
	idleTime       = time.Minute
	writerIdleTime = 5 * time.Second
	// grace is how long a worker may take to end a request that is canceled or beyond its
	// time. A worker that takes longer is killed.
	grace = 2 * time.Second
	// obeyTime is how long a worker may take before new queries go to another one, and moveTime
	// how much longer those wait there that have no rows yet.
	obeyTime = 100 * time.Millisecond
	moveTime = 100 * time.Millisecond
	// longTime is how long a query waits for its first rows beside an older one before it goes to
	// the spare worker. A spare starts with the second query, unless queryWorkersMax workers run.
	longTime        = 250 * time.Millisecond
	spareTime       = 20 * time.Millisecond // between two looks whether the spare is ready
	queryWorkersMax = 4
)

// A Client starts workers when they are needed, and passes requests to the one of their role.
// It is safe for concurrent use.
type Client struct {
	options Options

	mu      sync.Mutex
	closed  bool
	started int

	functions []protocol.Function        // of workers that start
	shared    map[protocol.Role]*process // that get requests
	spare     *process                   // that gets queries when the shared worker no longer does; or nil
	others    map[*process]bool          // workers of one query each, and those that get no more
}

// New returns a Client. It starts nothing.
func New(o Options) *Client {
	o.Memory = cmp.Or(o.Memory, workerMemoryDefault)
	o.Threads = cmp.Or(o.Threads, runtime.NumCPU())
	o.RowGroup = cmp.Or(o.RowGroup, rowGroupRows)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{options: o, shared: map[protocol.Role]*process{}, others: map[*process]bool{}}
}

// SetFunctions gives queries that begin from now on the functions of scripts.
func (c *Client) SetFunctions(functions []protocol.Function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions = functions
	for _, p := range []*process{c.shared[protocol.QueryRole], c.spare} {
		if p != nil {
			p.retire()
		}
	}
}

// Close ends the workers and waits for their end. Requests under way fail with ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	ending := c.processes()
	c.mu.Unlock()
	for _, p := range ending {
		p.end()
	}
	return nil
}

// processes returns all workers. The caller holds mu.
func (c *Client) processes() []*process {
	all := slices.Collect(maps.Values(c.shared))
	if c.spare != nil {
		all = append(all, c.spare)
	}
	return slices.AppendSeq(all, maps.Keys(c.others))
}

// A Query is a query and what it reads.
type Query struct {
	Version  uint64        // of the manifest; the worker reads this one or a newer one
	Ends     []wal.FileEnd // up to where the log is acknowledged
	SQL      string
	Params   []protocol.Param
	Limits   protocol.Limits
	External []External
	Parquet  bool // the rows are a Parquet file, for Rows.WriteStream
}

// An External table is one whose rows are not in the store. It is in the schema SystemSchema.
type External struct {
	Name    string
	Columns []protocol.Column
	// Rows yields values that encode as JSON objects, with the columns for keys. It may be
	// read twice.
	Rows iter.Seq2[any, error]
}

// ErrCrashed says that a query ended the worker that ran it.
var ErrCrashed = errors.New("the query ended the process that ran it")

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE
// or EXPLAIN. *QueryError says what is wrong with it.
//
// Until the Rows are closed, ctx ends the query. A query whose worker is ended or held up by
// another one runs again, in another worker, unless the first rows have been returned already.
// One that has no rows after longTime beside an older query is taken to be held up, once.
func (c *Client) Query(ctx context.Context, q Query) (*Rows, error) {
	q.Limits.Time = cmp.Or(q.Limits.Time, protocol.TimeDefault)
	params, err := protocol.EncodeParams(q.Params)
	if err != nil {
		return nil, err
	}
	request := &protocol.Query{Version: q.Version, Ends: q.Ends, SQL: q.SQL, Params: params, Limits: q.Limits, Parquet: q.Parquet}
	for _, e := range q.External {
		request.External = append(request.External, protocol.ExternalTable{Name: e.Name, Columns: e.Columns})
	}
	return c.askRows(ctx, requestOf(request), q.Limits.Time, func(w *protocol.Writer) error { return sendExternal(w, q.External) })
}

// askRows asks for rows and waits for their columns. rest sends what follows the request.
func (c *Client) askRows(ctx context.Context, q *protocol.Request, limit time.Duration, rest func(*protocol.Writer) error) (*Rows, error) {
	rows, err := c.startRows(ctx, q, limit, false, rest)
	if errors.Is(err, errMoved) {
		q.Stays = true
		rows, err = c.startRows(ctx, q, limit, false, rest)
	}
	if errors.Is(err, errWorkerLost) || errors.Is(err, errMoved) {
		rows, err = c.startRows(ctx, q, limit, true, rest)
	}
	return rows, err
}

func (c *Client) startRows(ctx context.Context, q *protocol.Request, limit time.Duration, alone bool, rest func(*protocol.Writer) error) (*Rows, error) {
	limited, stop := withTimeLimit(ctx, limit)
	a, err := c.ask(limited, q, alone, rest)
	if err != nil {
		stop()
		return nil, err
	}
	rows := &Rows{answer: a, stop: stop}
	err = rows.readColumns()
	if a.endWait() {
		go func() { // the worker may take as long as grace
			_ = a.finish(nil)
			stop()
		}()
		return nil, errMoved
	}
	if err != nil {
		err = a.finish(err)
		stop()
		return nil, err
	}
	return rows, nil
}

func requestOf(q *protocol.Query) *protocol.Request { return &protocol.Request{Query: q} }

// chunkBytes is how much JSON becomes rows at once.
const chunkBytes = 1 << 20

// sendExternal sends the rows of external tables.
func sendExternal(w *protocol.Writer, tables []External) error {
	for i, t := range tables {
		index := []byte{byte(i), byte(i >> 8), 0, 0}
		var rows []byte
		for row, err := range t.Rows {
			text, failed := json.Marshal(row)
			if explained, ok := errors.AsType[*protocol.QueryError](err); ok {
				return explained
			}
			if err = cmp.Or(err, failed); err != nil {
				return fmt.Errorf("eventstore: copy %s for the query: %w", t.Name, err)
			}
			rows = append(append(rows, ','), text...)
			if len(rows) > chunkBytes {
				rows[0] = '['
				if err := w.Write(protocol.RowsMessage, index, rows, []byte{']'}); err != nil {
					return err
				}
				rows = rows[:0]
			}
		}
		if len(rows) > 0 {
			rows[0] = '['
			if err := w.Write(protocol.RowsMessage, index, rows, []byte{']'}); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteSegment writes the rows of a closed file of the log as Parquet files. They are durable
// when it returns, and part of the store when the manifest names them. ErrMemory says that it
// may be done when the Segment is Wide.
func (c *Client) WriteSegment(ctx context.Context, q protocol.Segment) (files []protocol.Written, err error) {
	err = c.write(ctx, &protocol.Request{Segment: &q}, q.Wide, &files)
	return files, err
}

// Merge writes the rows of each group of files as one, without those that are deleted. After
// an error it returns what has become of the groups before the one that failed; ErrMemory says
// that fewer files can be merged at a time.
func (c *Client) Merge(ctx context.Context, q protocol.Merge) (merged []protocol.Merged, err error) {
	err = c.write(ctx, &protocol.Request{Merge: &q}, q.Wide, &merged)
	return merged, err
}

// CheckPredicate returns a *QueryError unless a predicate can be that of a delete.
func (c *Client) CheckPredicate(ctx context.Context, version uint64, table uint32, predicate string) error {
	return c.write(ctx, &protocol.Request{Check: &protocol.Check{Version: version, Table: table, Predicate: predicate}}, false, nil)
}

// write asks for something that has no rows.
func (c *Client) write(ctx context.Context, q *protocol.Request, alone bool, files any) error {
	a, err := c.ask(ctx, q, alone, sendNothing)
	if err != nil {
		return err
	}
	for err == nil {
		var kind protocol.Kind
		var text []byte
		if kind, text, err = a.in.Read(); err == nil {
			switch kind {
			case protocol.FilesMessage:
				err = json.Unmarshal(text, files)
			case protocol.CallMessage:
				if q.Recompute == nil {
					err = protocol.ErrInvalidMessage
				} else {
					err = a.answerCallBy(text, q.Recompute.Call)
				}
			default:
				err = endOf(kind, text)
			}
		}
	}
	if err = a.finish(err); errors.Is(err, errWorkerLost) {
		err = ErrCrashed
	}
	return err
}

// endOf returns the error of a message that ends an answer, io.EOF if it has none.
func endOf(kind protocol.Kind, text []byte) error {
	switch kind {
	case protocol.DoneMessage:
		return io.EOF
	case protocol.FailedMessage:
		var f protocol.Failure
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
		return &answeredError{f.Err()}
	}
	return protocol.ErrInvalidMessage
}

// An answeredError is an error that the worker gave as its answer.
type answeredError struct{ err error }

func (e *answeredError) Error() string { return e.err.Error() }
func (e *answeredError) Unwrap() error { return e.err }
