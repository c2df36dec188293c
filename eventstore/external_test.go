//go:build linux && cgo

package eventstore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"
)

func TestForeignTable(t *testing.T) {
	type letter struct {
		ID   string    `json:"id"`
		At   uint64    `json:"position"`
		Time time.Time `json:"time"`
		Text string    `json:"text,omitempty"`
	}
	asked := 0
	failing := errors.New("no such luck")
	columns := []ColumnInfo{{Name: "id", Type: "VARCHAR"}, {Name: "position", Type: "UBIGINT"}, {Name: "time", Type: "TIMESTAMP"}, {Name: "text", Type: "VARCHAR"}}
	letters := func() iter.Seq2[any, error] {
		asked++
		return func(yield func(any, error) bool) {
			for i := range uint64(5000) {
				l := letter{ID: "it's", At: 1<<64 - 1 - i, Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Text: strings.Repeat("x", int(i%700))}
				if !yield(l, nil) {
					return
				}
			}
		}
	}
	s, err := Open(t.TempDir(), Options{External: []ExternalTable{
		{Name: "Letters", Columns: columns, Rows: letters},
		{Name: "events", Columns: columns, Rows: letters},
		{Name: "broken", Columns: columns, Rows: func() iter.Seq2[any, error] {
			return func(yield func(any, error) bool) { yield(nil, failing) }
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1}`)

	for sql, want := range map[string]string{
		`SELECT count(*), max(position), count(DISTINCT id), max(length(text)), count(*) - count(text), max(time) FROM LETTERS`: "5000,18446744073709551615,1,699,8,2026-01-02 03:04:05.000006",
		`SELECT count(*) FROM letters JOIN events ON events.id = 1`:                                                             "5000",
		`SELECT count(*) FROM events`: "1", // the store's own
		`DESCRIBE letters`:            "id,VARCHAR,YES",
	} {
		if got := ask(t, s, sql); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	before := asked
	if ask(t, s, `SELECT 1`); asked != before {
		t.Error("a query that does not name the table has copied it")
	}
	if _, err := s.Query(context.Background(), `FROM broken`); !errors.Is(err, failing) {
		t.Errorf("a table whose rows cannot be read: %v", err)
	}
	for _, sql := range []string{`DROP TABLE letters`, `DELETE FROM letters`, `INSERT INTO letters BY NAME SELECT 'x' AS id`, `EXPLAIN ANALYZE DELETE FROM letters`} {
		if rows, err := s.Query(context.Background(), sql); err == nil {
			rows.Close()
			t.Errorf("%s was answered", sql)
		}
	}
}
