//go:build cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	duck "github.com/duckdb/duckdb-go-bindings"
)

// errEvicted ends a query for the writer's sake.
var errEvicted = &QueryError{
	Message: "the query was ended because writing events needed the memory",
	Hint:    "narrow it by time, or give the store more memory",
}

// evictPatience is how long the writer waits for queries to end; one whose
// client reads slowly takes longer, and is not waited for.
const evictPatience = time.Second

// queries are the queries that run.
type queries struct {
	slots     chan struct{}
	exclusive *sync.RWMutex // held while the writer needs to be alone
	mu        *sync.Mutex
	running   map[*Rows]context.CancelCauseFunc
	floor     *memoryFloor
	trimming  *sync.Mutex // held while free memory is returned to the system
}

func newQueries(most int) queries {
	return queries{slots: make(chan struct{}, most), exclusive: new(sync.RWMutex), mu: new(sync.Mutex), running: map[*Rows]context.CancelCauseFunc{}, floor: newMemoryFloor(), trimming: new(sync.Mutex)}
}

// Query answers one reading statement: SELECT, WITH, FROM, VALUES, DESCRIBE,
// SHOW, SUMMARIZE or EXPLAIN. The SQL sees the store and nothing else: no file,
// no network, no setting, nothing that writes. It reads what was committed when
// it began. *QueryError says what is wrong with it.
//
// At most Options.Queries run at the same time; others wait. The Rows must be
// closed; until then ctx ends the query, and so does Options.QueryTime.
func (s *Store) Query(ctx context.Context, sql string) (*Rows, error) {
	select {
	case s.queries.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.closing:
		return nil, ErrClosed
	}
	r, err := s.startQuery(ctx, sql)
	if err != nil {
		<-s.queries.slots
		return nil, err
	}
	return r, nil
}

func (s *Store) startQuery(ctx context.Context, sql string) (*Rows, error) {
	r, err := s.registerQuery(ctx)
	if err != nil {
		return nil, err
	}
	r.interruptWhenDone()
	err = r.copyExternalTables(sql)
	if err == nil {
		err = r.execute(sql)
	}
	if err != nil {
		err = r.explainError(err, sql)
		r.release()
		return nil, err
	}
	return r, nil
}

// registerQuery gives a query a connection of its own, so that none finds anything that
// another left behind.
func (s *Store) registerQuery(ctx context.Context) (*Rows, error) {
	select {
	case <-s.closing:
		return nil, ErrClosed
	default:
	}
	s.queries.exclusive.RLock()
	defer s.queries.exclusive.RUnlock()
	c, err := connect(s.db)
	if err != nil {
		return nil, err
	}
	r := &Rows{store: s, conn: c, ended: make(chan struct{}), released: make(chan struct{}), started: time.Now(), memoryBefore: residentBytes()}
	limited, stop := withTimeLimit(ctx, cmp.Or(s.options.QueryTime, queryTimeDefault))
	r.ctx, r.cancel = context.WithCancelCause(limited)
	r.stopTimer = stop
	s.queries.mu.Lock()
	defer s.queries.mu.Unlock()
	if len(s.queries.running) == 0 {
		s.queries.floor.rise(r.memoryBefore, r.started)
	}
	s.queries.running[r] = r.cancel
	return r, nil
}

// cancelAll ends all queries and waits for a while. It reports whether all have ended.
func (q *queries) cancelAll() bool {
	q.mu.Lock()
	var ending []*Rows
	for r, cancel := range q.running {
		cancel(errEvicted)
		ending = append(ending, r)
	}
	q.mu.Unlock()
	patience := time.After(evictPatience)
	for _, r := range ending {
		select {
		case <-r.released:
		case <-patience:
			return false
		}
	}
	return true
}

// close waits until the last query has ended, which it hastens.
func (q *queries) close() {
	q.mu.Lock()
	for _, cancel := range q.running {
		cancel(ErrClosed)
	}
	q.mu.Unlock()
	for range cap(q.slots) {
		q.slots <- struct{}{}
	}
}

// Rows is the result of a query. It is for one goroutine at a time.
type Rows struct {
	store    *Store
	conn     *conn
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ended    chan struct{} // stops watch
	released chan struct{} // the memory is free
	watching sync.WaitGroup
	once     sync.Once

	started      time.Time
	stopTimer    context.CancelFunc
	memoryBefore int64 // of the process

	stmt    duck.PreparedStatement
	res     duck.Result
	columns []ColumnInfo
	types   []valueType
	chunk   duck.DataChunk
	size    int // of the chunk
	next    int // row of the chunk
	row     []any
	err     error
}

// interruptWhenDone interrupts the query once its context is done. It does so again and
// again, because DuckDB forgets an interrupt that comes just before a statement
// begins.
func (r *Rows) interruptWhenDone() {
	r.watching.Go(func() {
		for done := r.ctx.Done(); ; {
			select {
			case <-done:
			case <-r.ended:
				return
			}
			r.conn.interrupt()
			select {
			case <-time.After(5 * time.Millisecond):
			case <-r.ended:
				return
			}
		}
	})
}

// execute begins the statement. The read-only transaction is the second lock
// behind the check of the statement's kind: EXPLAIN ANALYZE, for one, runs what
// it explains.
func (r *Rows) execute(sql string) error {
	if err := r.conn.exec("BEGIN TRANSACTION READ ONLY"); err != nil {
		return err
	}
	if err := r.prepare(sql); err != nil {
		return err
	}
	var pending duck.PendingResult
	defer duck.DestroyPending(&pending)
	if duck.PendingPreparedStreaming(r.stmt, &pending) == duck.StateError {
		return duckError(duck.PendingError(pending))
	}
	if duck.ExecutePending(pending, &r.res) == duck.StateError {
		return duckError(duck.ResultError(&r.res))
	}
	var err error
	if r.types, err = resultTypes(&r.res); err != nil {
		return err
	}
	for i, t := range r.types {
		r.columns = append(r.columns, ColumnInfo{Name: duck.ColumnName(&r.res, duck.IdxT(i)), Type: t.name})
	}
	return nil
}

func (r *Rows) prepare(sql string) error {
	parsed, err := r.conn.checkReadOnly(sql)
	if err != nil {
		return err
	}
	var stmts duck.ExtractedStatements
	defer duck.DestroyExtracted(&stmts)
	n := duck.ExtractStatements(r.conn.c, sql, &stmts)
	if message := duck.ExtractStatementsError(stmts); n == 0 && message != "" {
		return duckError(message)
	}
	if n != 1 || !parsed {
		return errNotReading("the query is not one statement that only reads")
	}
	if duck.PrepareExtractedStatement(r.conn.c, stmts, 0, &r.stmt) == duck.StateError {
		return duckError(duck.PrepareError(r.stmt))
	}
	switch duck.PreparedStatementType(r.stmt) {
	case duck.StatementTypeSelect, duck.StatementTypeExplain:
	default:
		return errNotReading("the statement is not one that only reads")
	}
	if duck.NParams(r.stmt) > 0 {
		return &QueryError{Message: "the query has parameters, which cannot be given"}
	}
	return nil
}

// Columns describes the columns.
func (r *Rows) Columns() []ColumnInfo { return r.columns }

// Next goes to the next row and reports whether there is one.
func (r *Rows) Next() bool {
	for r.err == nil && r.next == r.size {
		if !r.fetch() {
			return false
		}
	}
	if r.err != nil {
		return false
	}
	r.row = decodeRow(r.chunk, r.types, r.next)
	r.next++
	return true
}

func (r *Rows) fetch() bool {
	duck.DestroyDataChunk(&r.chunk)
	r.size, r.next = 0, 0
	if r.err = context.Cause(r.ctx); r.err != nil {
		return false
	}
	r.chunk = duck.FetchChunk(r.res)
	if r.chunk.Ptr == nil {
		if message := duck.ResultError(&r.res); message != "" {
			r.err = r.explainError(duckError(message), "")
		}
		return false
	}
	r.size = int(duck.DataChunkGetSize(r.chunk))
	return true
}

// Row returns the row that Next went to. It belongs to the caller.
func (r *Rows) Row() []any { return r.row }

// Err says why Next returned false; nil at the end of the result.
func (r *Rows) Err() error { return r.err }

// Close ends the query.
func (r *Rows) Close() error {
	r.once.Do(func() {
		r.release()
		<-r.store.queries.slots
	})
	return nil
}

func (r *Rows) release() {
	close(r.ended)
	r.watching.Wait()
	r.cancel(nil)
	r.stopTimer()
	duck.DestroyDataChunk(&r.chunk)
	r.size, r.next = 0, 0
	duck.DestroyResult(&r.res)
	duck.DestroyPrepare(&r.stmt)
	r.conn.close()
	q := &r.store.queries
	q.mu.Lock()
	if delete(q.running, r); len(q.running) == 0 {
		q.floor.idleSince = time.Now()
	}
	q.mu.Unlock()
	close(r.released)
	q.trimAfter(r)
}

// explainError says in our words why the query ended.
func (r *Rows) explainError(err error, sql string) error {
	if interrupted(err) {
		if cause := context.Cause(r.ctx); cause != nil {
			return cause
		}
	}
	if outOfMemory(err) {
		return errMemory
	}
	if _, ok := errors.AsType[*engineError](err); ok {
		return queryError(err, sql)
	}
	return err
}
