//go:build linux && cgo

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/systemtable"
)

// queriesTable is the SQL name of the table of running queries.
const queriesTable = "queries"

var (
	showQueries = regexp.MustCompile(`(?i)^\s*SHOW\s+QUERIES\s*;?\s*$`)
	killQuery   = regexp.MustCompile(`(?i)^\s*KILL\s+(?:QUERY\s+)?(\d+)\s*;?\s*$`)
)

// queries holds the running and waiting statements and tails.
type queries struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*runningQuery
}

// A runningQuery is a running or waiting statement, or a tail.
type runningQuery struct {
	id      uint64
	sql     string
	client  string
	limits  Limits
	asked   time.Time
	started atomic.Pointer[time.Time] // nil while it waits
	rows    atomic.Int64              // rows read from its result
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

func (q *queries) add(ctx context.Context, statement *Statement) *runningQuery {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	r := &runningQuery{id: q.last, sql: statement.SQL, client: statement.Client, limits: statement.Limits, asked: time.Now()}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	if q.all == nil {
		q.all = map[uint64]*runningQuery{}
	}
	q.all[r.id] = r
	return r
}

func (r *runningQuery) start() {
	now := time.Now()
	r.started.Store(&now)
}

func (q *queries) remove(r *runningQuery) {
	r.cancel(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.all, r.id)
}

// A QueryInfo describes a running or waiting query.
type QueryInfo struct {
	ID      uint64    `json:"id" sql:"UBIGINT" doc:"number, for KILL"`
	State   string    `json:"state" sql:"VARCHAR" doc:"running or waiting"`
	Started time.Time `json:"started" sql:"TIMESTAMP" doc:"start time, or arrival time if it waits"`
	Seconds float64   `json:"seconds" sql:"DOUBLE" doc:"seconds since then"`
	Rows    int64     `json:"rows" sql:"BIGINT" doc:"rows that the client has received; 0 in the formats arrow and parquet"`
	Memory  int64     `json:"memory" sql:"BIGINT" doc:"bytes that it may use; 0 for a tail"`
	Time    float64   `json:"time" sql:"DOUBLE" doc:"seconds that it may take; 0 for a tail, which has no limit"`
	Client  string    `json:"client" sql:"VARCHAR" doc:"client address, or socket"`
	SQL     string    `json:"sql" sql:"VARCHAR" doc:"the statement; TAIL for a tail"`
}

// Queries lists the running and waiting queries and tails, oldest first.
func (s *Store) Queries() []QueryInfo {
	s.queries.mu.Lock()
	defer s.queries.mu.Unlock()
	all := []QueryInfo{}
	for _, r := range s.queries.all {
		info := QueryInfo{
			ID: r.id, State: "waiting", Started: r.asked, Rows: r.rows.Load(), Memory: r.limits.Memory, Time: r.limits.Time.Seconds(),
			Client: r.client, SQL: r.sql,
		}
		if at := r.started.Load(); at != nil {
			info.State, info.Started = "running", *at
		}
		info.Seconds = time.Since(info.Started).Seconds()
		info.Started = info.Started.UTC()
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b QueryInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// errKilled ends a query that KILL names.
var errKilled = &event.Fault{Message: "the query was ended by KILL"}

// Kill ends the query or tail with the given number. It reports whether there was one.
func (s *Store) Kill(id uint64) bool {
	s.queries.mu.Lock()
	r := s.queries.all[id]
	s.queries.mu.Unlock()
	if r != nil {
		r.cancel(errKilled)
	}
	return r != nil
}

// executeControl executes SHOW QUERIES and KILL. It needs no slot and no worker, so it works
// while queries use all of them. It returns nil for any other statement.
func (s *Store) executeControl(q Statement) (*Rows, error) {
	var rows *memoryRows
	switch kill := killQuery.FindStringSubmatch(q.SQL); {
	case kill != nil:
		id, err := strconv.ParseUint(kill[1], 10, 64)
		if err != nil || !s.Kill(id) {
			return nil, &event.Fault{Message: "no query has number " + kill[1], Hint: "SHOW QUERIES lists the running queries"}
		}
		rows = &memoryRows{columns: []catalog.Column{{Name: "killed", Type: "UBIGINT"}}, rows: [][]any{{id}}}
	case showQueries.MatchString(q.SQL):
		rows = &memoryRows{}
		for _, c := range systemtable.Columns(QueryInfo{}) {
			rows.columns = append(rows.columns, catalog.Column{Name: c.Name, Type: c.Type})
		}
		for _, i := range s.Queries() {
			rows.rows = append(rows.rows, []any{i.ID, i.State, i.Started, i.Seconds, i.Rows, i.Memory, i.Time, i.Client, i.SQL})
		}
	default:
		return nil, nil
	}
	if q.Format.IsBinary() {
		return nil, &event.Fault{Message: fmt.Sprintf("%s is not answered as %s", strings.TrimSpace(q.SQL), q.Format), Hint: "ask for csv or json; SELECT * FROM queries is answered in every format"}
	}
	return &Rows{result: rows, format: q.Format, shown: q.Shown, running: new(runningQuery), end: func() {}}, nil
}

// memoryRows is a result held in memory.
type memoryRows struct {
	columns []catalog.Column
	rows    [][]any
	row     []any
}

// Columns implements result.
func (m *memoryRows) Columns() []catalog.Column { return m.columns }

// Next implements result.
func (m *memoryRows) Next() bool {
	if len(m.rows) == 0 {
		return false
	}
	m.row, m.rows = m.rows[0], m.rows[1:]
	return true
}

// Row implements result.
func (m *memoryRows) Row() []any { return m.row }

// Err implements result.
func (m *memoryRows) Err() error { return nil }

// Truncated implements result.
func (m *memoryRows) Truncated() bool { return false }

// WriteStream implements result. It is never called: executeControl rejects binary formats.
func (m *memoryRows) WriteStream(io.Writer) error {
	return errors.New("eventstore: rows in memory are not encoded")
}

// Close implements result.
func (m *memoryRows) Close() error { return nil }

// slowQueryDefault is the default of Options.SlowQuery.
const slowQueryDefault = time.Second

// slowQueriesMax is how many slow queries are listed.
const slowQueriesMax = 200

// slowTextMax is how many bytes of a statement the list keeps.
const slowTextMax = 4 << 10

// A SlowQuery is a query that took long and has ended.
type SlowQuery struct {
	ID      uint64    `json:"id" sql:"UBIGINT" doc:"number that it had in queries"`
	Started time.Time `json:"started" sql:"TIMESTAMP" doc:"start time"`
	Seconds float64   `json:"seconds" sql:"DOUBLE" doc:"until its client had the result, or it failed"`
	Waited  float64   `json:"waited" sql:"DOUBLE" doc:"seconds that it waited for other queries before"`
	Rows    int64     `json:"rows" sql:"BIGINT" doc:"rows that the client has received; 0 in the formats arrow and parquet"`
	Error   string    `json:"error,omitempty" sql:"VARCHAR" doc:"why it failed, or was ended"`
	Client  string    `json:"client" sql:"VARCHAR" doc:"client address, or socket"`
	SQL     string    `json:"sql" sql:"VARCHAR" doc:"the statement, at most its first 4,096 bytes"`
}

// slowQueries keeps the last slow queries, the oldest first. It is safe for concurrent use.
type slowQueries struct {
	mu  sync.Mutex
	all []SlowQuery
}

func (s *slowQueries) add(q SlowQuery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == slowQueriesMax {
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, q)
}

func (s *slowQueries) list() []SlowQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// endQuery removes a query that has ended, and remembers and logs it if it was slow.
func (s *Store) endQuery(r *runningQuery, err error) {
	s.queries.remove(r)
	started := r.started.Load()
	if started == nil {
		return
	}
	took := time.Since(*started)
	if limit := s.options.SlowQuery; limit < 0 || took < limit {
		return
	}
	q := SlowQuery{
		ID: r.id, Started: started.UTC(), Seconds: took.Seconds(), Waited: started.Sub(r.asked).Seconds(), Rows: r.rows.Load(),
		Client: r.client, SQL: r.sql[:min(len(r.sql), slowTextMax)],
	}
	if err != nil {
		q.Error = err.Error()
	}
	s.slow.add(q)
	s.options.Log.Warn("slow query", "id", q.ID, "seconds", q.Seconds, "waited", q.Waited, "rows", q.Rows, "client", q.Client, "error", q.Error, "sql", q.SQL)
}

// slowQueryRows yields the rows of the system table slow_queries.
func (s *Store) slowQueryRows() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, q := range s.slow.list() {
			if !yield(q, nil) {
				return
			}
		}
	}
}
