//go:build linux && cgo

package sqlworker

import (
	"errors"
	"io"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
)

func TestPredicates(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	check := func(predicate string) error {
		return f.client.CheckPredicate(t.Context(), f.M.Version, table.ID, predicate)
	}
	for _, good := range []string{`id = 7`, `event LIKE 'x%' OR id IN (1, 2) -- why`, `time < '2026-01-01'`} {
		if err := check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{``, `id = `, `nope = 1`, `id = 7) OR (true`, `id IN (SELECT id FROM events)`, `time < now()`, `time < current_timestamp`, `random() < 0.5`,
		`id = ?`, `true) GROUP BY ALL HAVING (true`, `true) LIMIT (1`, `id = 7; DROP VIEW events`, `id = 7; SELECT 1`, `id = 7 UNION SELECT 1`, `id = 7 INTERSECT SELECT 1 FROM events WHERE true`, `row_number() OVER () = 1`, `read_text('/etc/passwd') = 'x'`, `time`, `time < today()`} {
		if err := check(bad); err == nil {
			t.Errorf("%s was taken", bad)
		} else if _, ok := errors.AsType[*event.Fault](err); !ok {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := check(`emial = 'x'`); err == nil || err.Error() == "" {
		t.Errorf("an unknown column: got error %v, want one", err)
	} else if q, _ := errors.AsType[*event.Fault](err); q == nil || q.Line != 1 || q.Column != 1 {
		t.Errorf("an unknown column: got error %#v, want a fault in line 1, column 1", err)
	}
}

// TestPlacesInPredicates checks that positions in a statement are converted to positions in
// the predicate, which starts within a line.
func TestPlacesInPredicates(t *testing.T) {
	const begin, predicate = "SELECT 1 FROM events WHERE ", "a = 1 AND\n                              b = 2"
	for message, want := range map[string]event.Fault{
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                   ^":     {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n                                       ^": {Message: "no", Line: 1, Column: 5},
		"Binder Error: no\n\nLINE 1: SELECT 1 FROM events WHERE a = 1 AND\n               ^":                         {Message: "no", Line: 1, Column: 1},
		"Binder Error: no\n\nLINE 2:                               b = 2\n                                      ^":   {Message: "no", Line: 2, Column: 31},
		"Binder Error: no": {Message: "no"},
	} {
		got, ok := errors.AsType[*event.Fault](predicateError(begin, begin+predicate, duckdb.NewError(message)))
		if !ok || *got != want {
			t.Errorf("%q: %+v, want %+v", message, got, want)
		}
	}
	for _, err := range []error{nil, io.ErrUnexpectedEOF} {
		if got := predicateError(begin, begin+predicate, err); got != err {
			t.Errorf("%v instead of %v", got, err)
		}
	}
}
