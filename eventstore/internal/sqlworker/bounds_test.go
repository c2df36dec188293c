//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
)

func openTestConn(t testing.TB) *duckdb.Conn {
	t.Helper()
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Exec("SET TimeZone = 'UTC'"); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBounds(t *testing.T) {
	c := openTestConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Event: "event", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		column(2, "id", event.Int64), column(3, "time", event.Timestamp), column(4, "event", event.String),
	}}}}
	day := func(n int) int64 { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC).UnixMicro() }
	const none, end = math.MinInt64, math.MaxInt64
	for _, test := range []struct {
		sql      string
		min, max int64
		equal    string
	}{
		{`SELECT 1 FROM events WHERE time >= '2026-01-02' AND time < '2026-01-03'`, day(2), day(3), ""},
		{`SELECT 1 FROM events WHERE time > TIMESTAMP '2026-01-02 00:00:00' AND event = 'a'`, day(2), end, "map[event:[a]]"},
		{`SELECT 1 FROM events e WHERE '2026-01-02' <= e.time AND e.event IN ('a', 'b') AND id = 1`, day(2), end, "map[event:[a b] id:[1]]"},
		{`SELECT 1 FROM events WHERE time BETWEEN DATE '2026-01-02' AND '2026-01-02'::DATE + INTERVAL 1 DAY`, day(2), day(3) + timeSlack, ""},
		{`SELECT 1 FROM events WHERE time = '2026-01-02'`, day(2), day(2), ""},
		{`SELECT 1 FROM events WHERE time >= $from AND event = $e`, day(4), end, "map[event:[x]]"},
		{`SELECT 1 FROM events WHERE time >= date_trunc('day', TIMESTAMP '2026-01-02 13:00:00')`, day(2), end, ""},
		{`SELECT 1 FROM events WHERE time >= to_timestamp(1767312000)`, day(2), end, ""},
		{`SELECT 1 FROM events a JOIN events b USING (id) WHERE a.time >= '2026-01-02' AND b.time >= '2026-01-03'`, day(2), end, ""},
		{`SELECT 1 FROM events a LEFT JOIN other b USING (id) WHERE a.time >= '2026-01-02'`, day(2), end, ""},
		{`SELECT 1 FROM events WHERE time >= '2026-01-02' UNION ALL SELECT 1 FROM events WHERE time >= '2026-01-03' AND time < '2026-01-04'`, day(2), end, ""},
		{`WITH x AS (SELECT * FROM events WHERE time >= '2026-01-02') SELECT * FROM x`, day(2), end, ""},
		{`SELECT (SELECT count(*) FROM events WHERE time >= '2026-01-02')`, day(2), end, ""},
		// Not bounded.
		{`SELECT 1 FROM events WHERE time >= '2026-01-02' OR id = 1`, none, end, ""},
		{`SELECT 1 FROM events WHERE NOT (time >= '2026-01-02' AND id = 1)`, none, end, ""},
		{`SELECT 1 FROM events WHERE time >= '2026-01-02' UNION ALL SELECT 1 FROM events`, none, end, ""},
		{`WITH events AS (SELECT * FROM events WHERE time >= '2026-01-02') SELECT * FROM events`, none, end, ""},
		{`SELECT 1 FROM events a JOIN other b USING (id) WHERE time >= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM events a ASOF JOIN events b USING (id, time) WHERE b.time <= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM other a ASOF JOIN events b USING (id, time) WHERE b.time <= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM events a TABLESAMPLE 10% JOIN other b USING (id) WHERE a.time >= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM other a JOIN events b TABLESAMPLE 10% USING (id) WHERE b.time >= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM events WHERE id = 1.0`, none, end, ""},
		{`SELECT 1 FROM events WHERE id = 9007199254740993`, none, end, ""},
		{`SELECT 1 FROM events TABLESAMPLE 10% WHERE time >= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM events AS e(time, id) WHERE time >= '2026-01-02'`, none, end, ""},
		{`SELECT 1 FROM events WHERE time >= (SELECT max(time) FROM events)`, none, end, ""},
		{`SELECT 1 FROM other WHERE EXISTS (SELECT 1 FROM events e WHERE other.time >= '2026-01-02')`, none, end, ""},
		{`SELECT 1 FROM events WHERE time >= random()`, none, end, ""},
		{`SELECT 1 FROM events WHERE time >= time`, none, end, ""},
		{`SELECT 1 FROM events WHERE id >= '2026-01-02'`, none, end, ""},
		{`SUMMARIZE SELECT * FROM events WHERE time >= '2026-01-02'`, day(2), end, ""},
		{`DESCRIBE events`, none, end, ""},
	} {
		s, err := statement.Parse(c, test.sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", test.sql, err)
			continue
		}
		got := findBounds(c, s, table, []protocol.Param{{Name: "from", Value: time.UnixMicro(day(4))}, {Name: "e", Value: "x"}})
		wantMax := test.max
		if wantMax != end {
			wantMax++
		}
		equal := ""
		if len(got.equal) > 0 {
			equal = fmt.Sprint(got.equal)
		}
		if got.min != test.min || got.max != wantMax || equal != test.equal {
			t.Errorf("%s: got %d to %d, %v; want %d to %d, %s", test.sql, got.min, got.max, equal, test.min, wantMax, test.equal)
		}
	}
	s, err := statement.Parse(c, `SELECT 1 FROM events WHERE time >= now() - INTERVAL '15 minutes' AND time < now()`)
	if err != nil {
		t.Fatal(err)
	}
	got, now := findBounds(c, s, table, nil), time.Now()
	if from := now.Sub(time.UnixMicro(got.min)); from < 14*time.Minute || from > 16*time.Minute {
		t.Errorf("the last 15 minutes begin %v ago", from)
	}
	if to := time.UnixMicro(got.max).Sub(now); to < time.Second || to > time.Minute {
		t.Errorf("they end in %v", to)
	}
}

// TestChosenFilesHaveAllRows checks that queries return the same rows with and without a
// choice of files and frames.
func TestChosenFilesHaveAllRows(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	const day = 86400
	number := uint64(0)
	for _, first := range []int{0, 3 * day, day, 2 * day, day + 5000, 5 * day} { // some are late
		number++
		for i := range 3 {
			f.appendFrame(number, frameOf(table, 1000, testRow(first+i*1000)))
		}
		if number < 5 {
			f.seal(number)
		}
	}
	for _, where := range []string{
		`time >= '2026-11-23'`, `time < '2026-11-23 00:10:00'`, `time BETWEEN '2026-11-23 00:10:00' AND '2026-11-24 00:10:00'`, `time = '2026-11-25 00:00:07'`,
		`time > '2026-11-27'`, `time >= '2027-01-01'`, `event = 'event-xx-2'`, `event = 'nothing'`,
	} {
		chosen, all := `SELECT count(*), sum(id) FROM events WHERE `+where, `SELECT count(*), sum(id) FROM events WHERE (`+where+`) OR id = -1`
		f.want(chosen, f.ask(all))
		for _, limit := range []string{`LIMIT 5`, `LIMIT 700 OFFSET 400`, `LIMIT 9000`} {
			chosen, all := `SELECT id FROM events WHERE `+where+` ORDER BY time DESC `+limit, `SELECT id FROM (SELECT * FROM events WHERE (`+where+`) OR id = -1) ORDER BY time DESC `+limit
			f.want(chosen, f.ask(all))
		}
	}
}

// TestUnionOfBounds checks the combined bounds of two references to a table.
func TestUnionOfBounds(t *testing.T) {
	a := bounds{min: 10, max: 20, equal: map[string][]string{"x": {"1"}, "y": {"2"}}}
	b := bounds{min: 5, max: 15, equal: map[string][]string{"x": {"3"}}}
	want := bounds{min: 5, max: 20, equal: map[string][]string{"x": {"1", "3"}}}
	if got := a.union(b); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want.equal["x"] = []string{"3", "1"}
	if got := b.union(a); !reflect.DeepEqual(got, want) || len(a.equal["x"]) != 1 {
		t.Errorf("%+v", got)
	}
	if got := a.union(unbounded); got.min != math.MinInt64 || got.max != math.MaxInt64 || len(got.equal) != 0 {
		t.Errorf("with one that needs all: %+v", got)
	}
}

// TestBoundsOfParameters finds bounds in positional parameters.
func TestBoundsOfParameters(t *testing.T) {
	c := openTestConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Event: "event", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		column(2, "id", event.Int64), column(3, "time", event.Timestamp), column(4, "event", event.String),
	}}}}
	s, err := statement.Parse(c, `SELECT 1 FROM events WHERE time >= ? AND event = ? AND time < ? AND id = ?`)
	if err != nil || s == nil {
		t.Fatal(err)
	}
	got := findBounds(c, s, table, []protocol.Param{{Value: testDay}, {Value: "a"}, {Value: testDay.Add(time.Hour)}, {Value: int64(7)}})
	if got.min != testDay.UnixMicro() || got.max != testDay.Add(time.Hour).UnixMicro()+1 || fmt.Sprint(got.equal) != "map[event:[a] id:[7]]" {
		t.Errorf("got %d to %d, %v", got.min, got.max, got.equal)
	}
}
