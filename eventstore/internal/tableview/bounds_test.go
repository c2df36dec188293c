//go:build linux && cgo

package tableview

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

func TestBounds(t *testing.T) {
	c := storetest.OpenConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Event: "event", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		storetest.Column(2, "id", event.Int64), storetest.Column(3, "time", event.Timestamp), storetest.Column(4, "event", event.String),
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
		got := FindBounds(c, s, table, []protocol.Param{{Name: "from", Value: time.UnixMicro(day(4))}, {Name: "e", Value: "x"}})
		wantMax := test.max
		if wantMax != end {
			wantMax++
		}
		equal := ""
		if len(got.Equal) > 0 {
			equal = fmt.Sprint(got.Equal)
		}
		if got.min != test.min || got.max != wantMax || equal != test.equal {
			t.Errorf("%s: got %d to %d, %v; want %d to %d, %s", test.sql, got.min, got.max, equal, test.min, wantMax, test.equal)
		}
	}
	s, err := statement.Parse(c, `SELECT 1 FROM events WHERE time >= now() - INTERVAL '15 minutes' AND time < now()`)
	if err != nil {
		t.Fatal(err)
	}
	got, now := FindBounds(c, s, table, nil), time.Now()
	if from := now.Sub(time.UnixMicro(got.min)); from < 14*time.Minute || from > 16*time.Minute {
		t.Errorf("got rows from %v ago on, want about 15 minutes", from)
	}
	if to := time.UnixMicro(got.max).Sub(now); to < time.Second || to > time.Minute {
		t.Errorf("they end in %v", to)
	}
}

// TestUnionOfBounds checks the combined bounds of two references to a table.
func TestUnionOfBounds(t *testing.T) {
	a := bounds{min: 10, max: 20, Equal: map[string][]string{"x": {"1"}, "y": {"2"}}}
	b := bounds{min: 5, max: 15, Equal: map[string][]string{"x": {"3"}}}
	want := bounds{min: 5, max: 20, Equal: map[string][]string{"x": {"1", "3"}}}
	if got := a.union(b); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want.Equal["x"] = []string{"3", "1"}
	if got := b.union(a); !reflect.DeepEqual(got, want) || len(a.Equal["x"]) != 1 {
		t.Errorf("%+v", got)
	}
	if got := a.union(unbounded); got.min != math.MinInt64 || got.max != math.MaxInt64 || len(got.Equal) != 0 {
		t.Errorf("with one that needs all: %+v", got)
	}
}

// TestBoundsOfParameters finds bounds in positional parameters.
func TestBoundsOfParameters(t *testing.T) {
	c := storetest.OpenConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Event: "event", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		storetest.Column(2, "id", event.Int64), storetest.Column(3, "time", event.Timestamp), storetest.Column(4, "event", event.String),
	}}}}
	s, err := statement.Parse(c, `SELECT 1 FROM events WHERE time >= ? AND event = ? AND time < ? AND id = ?`)
	if err != nil || s == nil {
		t.Fatal(err)
	}
	got := FindBounds(c, s, table, []protocol.Param{{Value: storetest.Day}, {Value: "a"}, {Value: storetest.Day.Add(time.Hour)}, {Value: int64(7)}})
	if got.min != storetest.Day.UnixMicro() || got.max != storetest.Day.Add(time.Hour).UnixMicro()+1 || fmt.Sprint(got.Equal) != "map[event:[a] id:[7]]" {
		t.Errorf("got %d to %d, %v", got.min, got.max, got.Equal)
	}
}
