//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/output"
)

// waitForQueries waits until n queries run.
func waitForQueries(t *testing.T, s *Store, n int) []QueryInfo {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all := s.Queries()
		if len(all) == n {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d queries run, want %d: %+v", len(all), n, all)
		}
	}
}

func TestShowAndKillQueries(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Queries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ended := make(chan error, 2)
	for range 2 { // one runs and one waits: SHOW and KILL need no slot
		go func() {
			rows, err := s.Execute(context.Background(), Statement{SQL: endless, Client: "test"})
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			ended <- err
		}()
	}
	waitForQueries(t, s, 2)
	states := map[string]bool{}
	for _, q := range waitForQueries(t, s, 2) {
		states[q.State] = true
	}
	if !states["running"] {
		t.Error("no query runs")
	}
	var shown []map[string]any
	rows, err := s.Execute(context.Background(), Statement{SQL: "show queries;", Format: FormatJSON})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := output.Write(&b, rows); err != nil || json.Unmarshal(b.Bytes(), &shown) != nil || len(shown) != 2 || shown[0]["sql"] != endless || shown[0]["client"] != "test" {
		t.Errorf("%v: %s", err, b.String())
	}
	rows.Close()
	for _, q := range waitForQueries(t, s, 2) {
		if got := ask(t, s, "KILL "+Text(q.ID)); got != Text(q.ID) {
			t.Errorf("KILL: %s", got)
		}
		if err := <-ended; err == nil || err.Error() != "the query was ended by KILL" {
			t.Errorf("a killed query: %v", err)
		}
	}
	if _, err := s.Query(context.Background(), "KILL 1"); err == nil || !strings.Contains(err.Error(), "no query has number 1") {
		t.Error(err)
	}
	if got := ask(t, s, "SELECT count(*) FROM queries WHERE state = 'running' AND sql LIKE 'SELECT count%'"); got != "1" {
		t.Errorf("the table queries has %s rows of itself", got)
	}
}

func TestEndlessQueriesKeepNobodyOut(t *testing.T) {
	s, err := Open(t.TempDir(), Options{QueryTime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 4 {
		go func() {
			if rows, err := s.Query(ctx, endless); err == nil {
				rows.Next()
				rows.Close()
			}
		}()
	}
	waitForQueries(t, s, 4)
	if got := ask(t, s, "SELECT 1"); got != "1" || len(s.Queries()) != 4 {
		t.Errorf("%s, and %d of 4 endless queries run", got, len(s.Queries()))
	}
	cancel()
	waitForQueries(t, s, 0)
}

// A lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// askFor reads all rows of a statement as text, within a time limit; 0 is the default.
func askFor(t *testing.T, s *Store, limit time.Duration, sql string) (rows []string, err error) {
	t.Helper()
	r, err := s.Execute(context.Background(), Statement{SQL: sql, Client: "test", Limits: Limits{Time: limit}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
		rows = append(rows, strings.TrimSuffix(fmt.Sprintln(r.Row()...), "\n"))
	}
	return rows, r.Err()
}

func TestSlowQueries(t *testing.T) {
	var log lockedBuffer
	s, err := Open(t.TempDir(), Options{SlowQuery: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := askFor(t, s, 0, "SELECT 1"); err != nil { // starts the worker
		t.Fatal(err)
	}
	s.slow = slowQueries{}
	if _, err := askFor(t, s, 300*time.Millisecond, endless); err == nil {
		t.Fatal("an endless query has ended")
	}
	rows, err := s.Execute(t.Context(), Statement{SQL: "SELECT 7", Client: "patient"})
	if err != nil {
		t.Fatal(err)
	}
	rows.Next()
	time.Sleep(150 * time.Millisecond) // the client is slow, and holds what the query has
	rows.Close()
	got, err := askFor(t, s, 0, "SELECT client, rows, error IS NULL, sql FROM perigee.slow_queries WHERE seconds >= 0.1 ORDER BY id")
	want := []string{"test 0 false " + endless, "patient 1 true SELECT 7"}
	if err != nil || len(got) != 2 || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if n := strings.Count(log.String(), `msg="slow query"`); n < 2 || !strings.Contains(log.String(), `sql="SELECT 7"`) {
		t.Errorf("the log has %d slow queries, want 2:\n%s", n, log.String())
	}
}

func TestSlowQueriesAreBounded(t *testing.T) {
	s := openStore(t, t.TempDir())
	now := time.Now().Add(-time.Minute)
	for i := range slowQueriesMax + 10 {
		r := &runningQuery{id: uint64(i), sql: strings.Repeat("x", 2*slowTextMax), asked: now, cancel: func(error) {}}
		r.started.Store(&now)
		s.endQuery(r, nil)
	}
	all := s.slow.list()
	if len(all) != slowQueriesMax || all[0].ID != 10 || len(all[0].SQL) != slowTextMax {
		t.Errorf("got %d queries from number %d on, with a text of %d bytes, want %d from 10 on, with %d", len(all), all[0].ID, len(all[0].SQL), slowQueriesMax, slowTextMax)
	}
	waiting := &runningQuery{sql: "never started", asked: now, cancel: func(error) {}}
	s.endQuery(waiting, nil)
	if last := s.slow.list()[slowQueriesMax-1]; last.SQL == "never started" {
		t.Error("a query that only waited is among the slow ones")
	}
}
