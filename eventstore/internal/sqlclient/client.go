//go:build linux

// Package sqlclient starts the SQL workers of an event store, which are child processes, and asks
// them. A query cannot harm the store: a worker that crashes, hangs or exceeds its memory is
// ended. Other queries that ran in it are retried, and the next query starts a new worker.
//
// Workers run the same executable as their parent, so a program that asks one must call
// sqlworker.Run at the start of main. A Client is safe for concurrent use; its Rows are not.
package sqlclient

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

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
)

// Options configure a Client.
type Options struct {
	Folder  string // folder of the store
	Memory  int64  // bytes of a worker's queries, at least 128 MiB; default catalog.DefaultQueryMemory
	Threads int    // threads per query; default: one per core
	File    string // absolute path of a file that Read may read; default none
	Log     *slog.Logger
}

const (
	// writerMemory is the memory of each of the two workers that write files.
	writerMemory     = 128 << 20
	wideMemory       = 3 * writerMemory // for a separate worker that writes wide rows
	queriesMemoryMin = 128 << 20
	// idleTime is the time after which an idle worker ends, writerIdleTime that of a
	// worker that writes files.
	idleTime       = time.Minute
	writerIdleTime = 5 * time.Second
	// grace is the time that a worker may take to end a request that was canceled or
	// timed out. After that it is killed.
	grace = 2 * time.Second
	// cancelWait is the time that a worker may take to cancel a request before new queries
	// go to another worker. moveTime is how much longer its queries without rows wait before
	// they move there.
	cancelWait = 100 * time.Millisecond
	moveTime   = 100 * time.Millisecond
	// longTime is the time that a query waits for its first rows beside an older query
	// before it moves to the spare worker. A spare starts with the second query, unless
	// queryWorkersMax workers run.
	longTime        = 250 * time.Millisecond
	spareTime       = 20 * time.Millisecond // interval for checking whether the spare is ready
	queryWorkersMax = 4
)

// A Client starts workers on demand and routes requests to the worker of their role. It is
// safe for concurrent use.
type Client struct {
	options Options

	mu      sync.Mutex
	closed  bool
	started int

	functions []protocol.Function        // functions for new workers
	shared    map[protocol.Role]*process // workers that get requests
	spare     *process                   // takes over queries from the shared worker; may be nil
	others    map[*process]bool          // workers of a single query, and retired workers
}

// New returns a Client. It starts no worker.
func New(o Options) *Client {
	o.Memory = cmp.Or(o.Memory, catalog.DefaultQueryMemory)
	o.Threads = cmp.Or(o.Threads, runtime.NumCPU())
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{options: o, shared: map[protocol.Role]*process{}, others: map[*process]bool{}}
}

// SetFunctions sets the script functions of queries that begin from now on.
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

// Close ends the workers and waits for them. Running requests fail with ErrClosed.
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

// A Query is a query and its input.
type Query struct {
	Version  uint64        // of the manifest; the worker reads this version or a newer one
	Ends     []wal.FileEnd // acknowledged ends of the log files
	SQL      string
	Params   []protocol.Param
	Limits   protocol.Limits
	External []External
	Parquet  bool // return the rows as a Parquet file, for Rows.WriteStream
	// Fetch brings files from a lake to the disk. They stay there until the query ends or Fetch
	// is called again. It may be called again if the query begins again.
	Fetch func(ctx context.Context, files []protocol.NeededFile) error
}

// An External table has rows that are not in the store. It belongs to the schema
// SystemSchema.
type External struct {
	Name    string
	Columns []catalog.Column
	// Rows yields values that encode as JSON objects, keyed by column. It may be iterated
	// twice.
	Rows iter.Seq2[any, error]
}

// ErrCrashed reports that a query crashed its worker.
var ErrCrashed = errors.New("the query ended the process that ran it")

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE
// or EXPLAIN. It returns an *event.Fault for invalid SQL.
//
// Until the Rows are closed, ctx cancels the query. If another query kills or blocks the
// worker, the query is retried on another worker, unless its first rows were already
// returned. A query without rows after longTime beside an older query counts as blocked,
// once.
func (c *Client) Query(ctx context.Context, q Query) (*Rows, error) {
	q.Limits.Time = cmp.Or(q.Limits.Time, catalog.DefaultQueryTime)
	params, err := protocol.EncodeParams(q.Params)
	if err != nil {
		return nil, err
	}
	request := &protocol.Query{Version: q.Version, Ends: q.Ends, SQL: q.SQL, Params: params, Limits: q.Limits, Parquet: q.Parquet}
	for _, e := range q.External {
		request.External = append(request.External, protocol.ExternalTable{Name: e.Name, Columns: e.Columns})
	}
	asked := requestOf(request)
	asked.Fetch = q.Fetch
	return c.askRows(ctx, asked, q.Limits.Time, func(w *protocol.Writer) error { return sendExternal(w, q.External) })
}

// askRows sends a request and waits for the columns of its result. rest sends the data that
// follows the request.
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
	limited, stop := protocol.WithTimeLimit(ctx, limit)
	a, err := c.ask(limited, q, alone, rest)
	if err != nil {
		stop()
		return nil, err
	}
	rows := &Rows{answer: a, stop: stop}
	err = rows.readColumns()
	if a.endWait() {
		go func() { // the worker may take up to grace
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

// chunkBytes is the amount of JSON that is converted into rows at once.
const chunkBytes = 1 << 20

// sendExternal sends the rows of external tables.
func sendExternal(w *protocol.Writer, tables []External) error {
	for i, t := range tables {
		index := []byte{byte(i), byte(i >> 8), 0, 0}
		var rows []byte
		for row, err := range t.Rows {
			text, failed := json.Marshal(row)
			if explained, ok := errors.AsType[*event.Fault](err); ok {
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

// WriteSegment writes the rows of a closed log file as Parquet files. The files are durable
// when it returns; they join the store when the manifest lists them. After ErrMemory, retry
// with Segment.LowMemory.
func (c *Client) WriteSegment(ctx context.Context, q protocol.Segment) (files []protocol.Written, err error) {
	err = c.write(ctx, &protocol.Request{Segment: &q}, q.LowMemory, &files)
	return files, err
}

// Merge merges each group of files into one, without the deleted rows. On an error it also
// returns the results of the groups before the failed one. After ErrMemory, retry with fewer
// files.
func (c *Client) Merge(ctx context.Context, q protocol.Merge) (merged []protocol.Merged, err error) {
	err = c.write(ctx, &protocol.Request{Merge: &q}, q.LowMemory, &merged)
	return merged, err
}

// CheckPredicate returns an *event.Fault if predicate is not valid for a delete.
func (c *Client) CheckPredicate(ctx context.Context, version uint64, table uint32, predicate string) error {
	return c.write(ctx, &protocol.Request{Check: &protocol.Check{Version: version, Table: table, Predicate: predicate}}, false, nil)
}

// write sends a request whose answer has no rows.
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

// endOf returns the error in a message that ends an answer, or io.EOF if the answer ended
// without an error.
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

// An answeredError is an error that the worker returned in its answer.
type answeredError struct{ err error }

func (e *answeredError) Error() string { return e.err.Error() }
func (e *answeredError) Unwrap() error { return e.err }

// readTime is effectively no limit: the caller's context ends a Read.
const readTime = 10 * 365 * 24 * time.Hour

// Read returns the rows of trusted SQL. With Options.Threads 1, rows of a file come in file
// order.
func (c *Client) Read(ctx context.Context, sql string) (*Rows, error) {
	return c.askRows(ctx, &protocol.Request{Read: &protocol.Read{SQL: sql}}, readTime, func(*protocol.Writer) error { return nil })
}

// Tail returns the next rows of a table, in append order. Position returns where to continue.
func (c *Client) Tail(ctx context.Context, q protocol.Tail) (*Rows, error) {
	return c.askRows(ctx, &protocol.Request{Tail: &q}, protocol.TailTime, func(*protocol.Writer) error { return nil })
}

// Recompute rewrites a file. The result is any number of files, possibly none.
func (c *Client) Recompute(ctx context.Context, q protocol.Recompute) (files []manifest.File, err error) {
	err = c.write(ctx, &protocol.Request{Recompute: &q}, q.LowMemory, &files)
	if errors.Is(err, protocol.ErrMemory) && !q.LowMemory {
		q.LowMemory = true
		return c.Recompute(ctx, q)
	}
	return files, err
}
