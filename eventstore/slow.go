//go:build linux && cgo

package eventstore

import (
	"iter"
	"slices"
	"sync"
	"time"
)

// slowQueryDefault is the default of Options.SlowQuery.
const slowQueryDefault = time.Second

// slowQueriesMax is how many slow queries are listed.
const slowQueriesMax = 200

// slowTextMax is how many bytes of a statement the list keeps.
const slowTextMax = 4 << 10

// A SlowQuery is a query that took long and has ended.
type SlowQuery struct {
	ID      uint64    `json:"id" sql:"UBIGINT" doc:"number that it had in queries"`
	Started time.Time `json:"started" sql:"TIMESTAMP" doc:"when it was started"`
	Seconds float64   `json:"seconds" sql:"DOUBLE" doc:"until its client had the result, or it failed"`
	Waited  float64   `json:"waited" sql:"DOUBLE" doc:"seconds that it waited for other queries before"`
	Rows    int64     `json:"rows" sql:"BIGINT" doc:"rows that the client has received; 0 in the formats arrow and parquet"`
	Error   string    `json:"error,omitempty" sql:"VARCHAR" doc:"why it failed, or was ended"`
	Client  string    `json:"client" sql:"VARCHAR" doc:"who asked"`
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
