//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	store "github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// TestMain is also the worker that answers queries.
func TestMain(m *testing.M) {
	store.RunWorker()
	os.Exit(m.Run())
}

func open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Place {
		s := open(t)
		// A required column makes a document that the sink refuses possible.
		open := opener(s, store.TableConfig{Columns: []event.Column{{Name: "id", Path: []string{"id"}, Type: event.Int64, Required: true}}})
		return sinktest.Place{
			Guarantee: sink.ExactlyOnce,
			NoVerify:  true,
			Sink: func(t *testing.T, pipeline string) sink.Sink {
				made, err := newSink(pipeline, Config{Table: "events"}, open)
				if err != nil {
					t.Fatal(err)
				}
				return made
			},
			Rows:        func(t *testing.T) []sinktest.Row { return read(t, s) },
			RejectedDoc: func(int64) string { return `{"id":"not a number"}` },
		}
	})
}

func read(t *testing.T, s *store.Store) []sinktest.Row {
	t.Helper()
	var landed []sinktest.Row
	for _, info := range s.Tables() {
		if len(info.Columns) < 2 {
			continue // nothing but the declared column yet
		}
		rows, err := s.Query(context.Background(), `SELECT id, name FROM events`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			row := rows.Row()
			landed = append(landed, sinktest.Row{ID: row[0].(int64), Name: row[1].(string)})
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	return landed
}

func opener(s *store.Store, c store.TableConfig) func(string) (*store.Table, error) {
	return func(name string) (*store.Table, error) { return s.Table(name, c) }
}

func TestErrorsForThePipeline(t *testing.T) {
	s := open(t)
	timed := opener(s, store.TableConfig{Time: "at"})
	if _, err := newSink("p", Config{}, timed); err == nil || !strings.Contains(err.Error(), "table is missing") {
		t.Errorf("a sink without a table: %v", err)
	}
	first, err := newSink("p", Config{Table: "t"}, timed)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := first.Open(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := newSink("p", Config{Table: "t"}, opener(s, store.TableConfig{Time: "time"}))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = second.Open(context.Background(), "a")
	if permanent, ok := errors.AsType[*event.PermanentError](err); !ok || permanent.Hint == "" {
		t.Errorf("another time column for a table: %v", err)
	}
	err = w.Write(context.Background(), sinktest.Docs(0, `{"id":1}`))
	if rows, ok := errors.AsType[*sink.RowErrors](err); !ok || !strings.Contains(rows.Error(), "at is missing") || rows.Rows[0].Stage != sink.StageColumn {
		t.Errorf("an event without its time: %v", err)
	}
	err = w.Write(context.Background(), sinktest.Docs(0, `[1]`))
	if rows, ok := errors.AsType[*sink.RowErrors](err); !ok || rows.Rows[0].Stage != "" {
		t.Errorf("an event that is an array: %v", err)
	}
}
