//go:build linux && cgo

// Package eventstoretest opens event stores for tests of packages that use them. A program of
// such tests calls eventstore.RunWorker in TestMain.
package eventstoretest

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/eventstore/output"
)

// Open opens a store in a folder of the test, with a table events that has the given documents
// if there are any.
func Open(t testing.TB, c eventstore.TableConfig, docs ...string) *eventstore.Store {
	t.Helper()
	s, err := eventstore.Open(t.TempDir(), eventstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if len(docs) == 0 {
		return s
	}
	table, err := s.Table("events", c)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := table.TakeOver(t.Context(), "pipeline", "partition")
	if err != nil {
		t.Fatal(err)
	}
	out := &event.Output{Range: event.Range{Count: uint64(len(docs))}}
	for i, doc := range docs {
		out.Data = append(out.Data, doc...)
		out.Ends, out.From = append(out.Ends, uint32(len(out.Data))), append(out.From, uint32(i))
	}
	if err := p.Append(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	return s
}

// Ask returns the result of a query as CSV without its header.
func Ask(t testing.TB, s *eventstore.Store, sql string) string {
	t.Helper()
	rows, err := s.Execute(t.Context(), eventstore.Statement{SQL: sql, Format: eventstore.FormatCSV})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	var b strings.Builder
	if err := output.Write(&b, rows); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	_, body, _ := strings.Cut(b.String(), "\n")
	return strings.TrimSuffix(body, "\n")
}
