//go:build linux && cgo

package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// field is a function that returns a field of its row.
func field(name string, kind event.Type) Function {
	return Function{Name: "get_" + name, Type: kind, Call: func(_ context.Context, rows [][]byte) (values [][]byte, err error) {
		for _, row := range rows {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(row, &fields); err != nil {
				return nil, err
			}
			values = append(values, fields[name])
		}
		return values, nil
	}}
}

// TestFunctions calls functions of this process from SQL: for rows in files and in the log,
// for every type, from several threads, and for no rows.
func TestFunctions(t *testing.T) {
	s := openStore(t, t.TempDir())
	p := take(t, openTable(t, s, TableConfig{Time: "time"}))
	var calls atomic.Int64
	count := Function{Name: "nothing", Type: event.JSON, Call: func(_ context.Context, rows [][]byte) ([][]byte, error) {
		calls.Add(1)
		return make([][]byte, len(rows)), nil
	}}
	functions := []Function{
		field("id", event.Int64), field("b", event.Bool), field("i", event.Int32), field("f", event.Float64), field("s", event.String),
		field("t", event.Timestamp), field("j", event.JSON), count,
	}
	if err := s.SetFunctions(functions); err != nil {
		t.Fatal(err)
	}
	appendDocs(t, p, 0, `{"time":"2026-11-01T00:00:00Z","id":1,"b":true,"i":-7,"f":1.5,"s":"","t":"2026-11-02T03:04:05.25Z","j":{"a":[1]}}`)
	seal(t, s)
	appendDocs(t, p, 1, `{"time":"2026-11-01T00:00:01Z","id":2,"s":"twelve bytes and more"}`)
	got := ask(t, s, `SELECT get_id(e), get_b(e), get_i(e), get_f(e), get_s(e), get_j(e), nothing(e) FROM events e WHERE get_id(e) > 0 ORDER BY get_id(e)`)
	if want := "1,true,-7,1.5,,\"{\"\"a\"\":[1]}\",\n2,,,,twelve bytes and more,,"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for sql, want := range map[string]string{
		`SELECT get_s({'s': 'x'}), get_id(NULL), get_id({'a': 1})`:                          "x,,",
		`SELECT typeof(get_t({'t': '2026-11-02T03:04:05.25Z'})), get_t({'t': 1})`:           "TIMESTAMP,1970-01-01 00:00:01",
		`SELECT count(*), sum(get_id(r)) FROM (SELECT range AS id FROM range(100000)) AS r`: "100000,4999950000",
		`SELECT get_id({'id': get_id({'id': 5})})`:                                          "5",
		`SELECT count(*) FROM range(10) AS a WHERE nothing({'x': a.range}) IS NULL`:         "10",
		`SELECT sum(n) FROM (SELECT count(*) AS n FROM events e GROUP BY get_s(e))`:         "2",
		`SELECT sum(length(get_s({'s': repeat('x', 1000) || repeat('x', 1000) || repeat('x', 1000) || repeat('x', 1000) || repeat('x', 1000) || i::VARCHAR}))) FROM range(4000) AS r(i)`: "20014890",
	} {
		if got := ask(t, s, sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	if calls.Load() == 0 {
		t.Error("a function was not called")
	}
}

// TestFunctionsThatFail checks that a failing function ends only its query, and with its
// error.
func TestFunctionsThatFail(t *testing.T) {
	s := openStore(t, t.TempDir())
	entered := make(chan struct{}, 1)
	functions := []Function{
		{Name: "fails", Type: event.Int64, Call: func(context.Context, [][]byte) ([][]byte, error) { return nil, errors.New("line 3: no") }},
		field("s", event.Int64),
		{Name: "waits", Type: event.Int64, Call: func(ctx context.Context, _ [][]byte) ([][]byte, error) {
			select {
			case entered <- struct{}{}:
			default: // DuckDB may call it twice: for constant folding and for execution
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	}
	if err := s.SetFunctions(functions); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		`SELECT fails({'a': 1})`:                        "function fails: line 3: no",
		`SELECT get_s({'s': 'text'})`:                   "wants int64",
		`SELECT script_value(1, 0, '{}')`:               "script_value is not allowed",
		`SELECT fails({'a': range}) FROM range(100000)`: "line 3: no",
	} {
		rows, err := s.Query(t.Context(), sql)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
			rows.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", sql, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.Query(ctx, `SELECT waits({'a': 1})`)
		ended <- err
	}()
	<-entered
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	_, err := s.Execute(t.Context(), Statement{SQL: `SELECT waits({'a': 1})`, Limits: Limits{Time: 50 * time.Millisecond}})
	if err == nil || !strings.Contains(err.Error(), "took longer") {
		t.Errorf("too long: %v", err)
	}
	if got := ask(t, s, "SELECT 1"); got != "1" {
		t.Errorf("afterwards: %s", got)
	}
	openTable(t, s, TableConfig{})
	if _, err := s.Delete(t.Context(), "events", "get_s(events) = 1"); err == nil {
		t.Error("a delete calls a function")
	}
	for name, want := range map[string]string{"COUNT": "already", "fails": "already", "no name": "invalid", "p99": "already"} {
		wrong := append([]Function{}, functions...)
		wrong = append(wrong, Function{Name: name, Type: event.Int64})
		if err := s.SetFunctions(wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	functions[0].Call = func(_ context.Context, rows [][]byte) ([][]byte, error) {
		return [][]byte{fmt.Append(nil, len(rows))}, nil
	}
	if err := s.SetFunctions(functions[:1]); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, `SELECT fails({'a': 1})`); got != "1" {
		t.Errorf("the new function: %s", got)
	}
}
