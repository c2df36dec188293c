//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	tables, err := s.Tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range tables {
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

// TestKind makes sinks as a configuration does, and checks where they would write.
func TestKind(t *testing.T) {
	opened, refused := 0, errors.New("refused")
	kind := Kind(func(string) (*store.Table, error) { opened++; return nil, refused }, nil)
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(data, table string) (sink.Sink, error) {
		return kind.New(sink.Env{Pipeline: "p", Data: data}, func(c any) error {
			c.(*Config).Table = table
			return nil
		})
	}
	if _, err := kind.New(sink.Env{}, func(any) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("settings that cannot be read: %v", err)
	}
	for _, name := range []string{"", "1st", "a b", "x.y"} {
		if _, err := create(t.TempDir(), name); err == nil {
			t.Errorf("a table called %q was taken", name)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		data string
		ctx  context.Context
		want func(error) bool
	}{
		{t.TempDir(), t.Context(), func(err error) bool { return err == nil }},
		{filepath.Join(t.TempDir(), "not yet"), t.Context(), func(err error) bool { return err == nil }},
		{file, t.Context(), event.IsPermanent},
		{t.TempDir(), canceled, func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		s, err := create(test.data, "events")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Traits().Check(test.ctx); !test.want(err) {
			t.Errorf("check of %s: %v", test.data, err)
		}
		if opened > 0 {
			t.Error("a check opens the store, which may be an engine's")
		}
	}
	s, err := create(t.TempDir(), "events")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(t.Context(), "a"); err != refused {
		t.Errorf("a store that cannot be opened: %v", err)
	}
	if _, err := s.Traits().Positions.Positions(t.Context()); !errors.Is(err, refused) {
		t.Errorf("positions of a store that cannot be opened: %v", err)
	}
	if err := s.Traits().Positions.SetPosition(t.Context(), "a", 1); !errors.Is(err, refused) {
		t.Errorf("a position for a store that cannot be opened: %v", err)
	}
	if opened != 3 {
		t.Errorf("the table was opened %d times", opened)
	}
}

// TestOneTable holds that a sink asks for its table once, and that the classes of the store's
// errors reach the pipeline.
func TestOneTable(t *testing.T) {
	s := open(t)
	opened := 0
	made, err := newSink("p", Config{Table: "t"}, func(name string) (*store.Table, error) {
		opened++
		return s.Table(name, store.TableConfig{})
	})
	if err != nil {
		t.Fatal(err)
	}
	old, done, err := made.Open(t.Context(), "a")
	if err != nil || len(done) > 0 {
		t.Fatal(done, err)
	}
	if err := old.Write(t.Context(), sinktest.Docs(0, `{"id":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, done, err = made.Open(t.Context(), "a"); err != nil || !done.Covers(0, 1) {
		t.Errorf("the next owner has %v, %v", done, err)
	}
	if err := old.Write(t.Context(), sinktest.Docs(1, `{"id":2}`)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the owner before: %v, want sink.ErrFenced", err)
	}
	if opened != 1 {
		t.Errorf("the table was opened %d times", opened)
	}
	if err := made.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Tables(); err != nil {
		t.Errorf("the store of other sinks is closed: %v", err)
	}
}

// TestChangedTables holds that a writer of a table which was dropped or renamed is fenced, and
// that the next one has the table that bears the name then, or learns why none does.
func TestChangedTables(t *testing.T) {
	s := open(t)
	made, err := newSink("p", Config{Table: "t"}, opener(s, store.TableConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	write := func(first uint64) sink.Writer {
		t.Helper()
		w, done, err := made.Open(t.Context(), "a")
		if err != nil || len(done) > 0 {
			t.Fatalf("a new table has %v, %v", done, err)
		}
		if err := w.Write(t.Context(), sinktest.Docs(first, `{"id":1}`)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := write(0)
	if err := s.DropTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), sinktest.Docs(1, `{"id":2}`)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("to a dropped table: %v", err)
	}
	if all, err := made.Traits().Positions.Positions(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("positions after the drop: %v, %v", all, err)
	}
	w = write(0)
	if err := s.RenameTable(t.Context(), "t", "u", false); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), sinktest.Docs(1, `{"id":2}`)); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("to a renamed table: %v", err)
	}
	if _, _, err := made.Open(t.Context(), "a"); !event.IsPermanent(err) || !strings.Contains(err.Error(), "table t is called u now") {
		t.Errorf("under the old name: %v", err)
	}
}
