//go:build linux && cgo

package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
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
