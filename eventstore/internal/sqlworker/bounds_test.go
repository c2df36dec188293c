//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

func openTestConn(t testing.TB) *conn {
	t.Helper()
	db, err := openDuck(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.exec("SET TimeZone = 'UTC'"); err != nil {
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
		s, err := c.parse(test.sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", test.sql, err)
			continue
		}
		got := c.findBounds(s, table, []protocol.Param{{Name: "from", Value: time.UnixMicro(day(4))}, {Name: "e", Value: "x"}})
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
	s, err := c.parse(`SELECT 1 FROM events WHERE time >= now() - INTERVAL '15 minutes' AND time < now()`)
	if err != nil {
		t.Fatal(err)
	}
	got, now := c.findBounds(s, table, nil), time.Now()
	if from := now.Sub(time.UnixMicro(got.min)); from < 14*time.Minute || from > 16*time.Minute {
		t.Errorf("the last 15 minutes begin %v ago", from)
	}
	if to := time.UnixMicro(got.max).Sub(now); to < time.Second || to > time.Minute {
		t.Errorf("they end in %v", to)
	}
}

func TestLatest(t *testing.T) {
	c := openTestConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		column(2, "id", event.Int64), column(3, "time", event.Timestamp), column(4, "event", event.String),
	}}}}
	for sql, want := range map[string]int64{
		`SELECT * FROM events ORDER BY time DESC LIMIT 100`:                                             100,
		`SELECT id, upper(event) FROM events e WHERE id > 5 ORDER BY e.time DESC, id LIMIT 10 OFFSET 5`: 10,
		`SELECT time AS time, id FROM events ORDER BY time DESC LIMIT 10`:                               10,
		`SELECT * FROM events ORDER BY time LIMIT 100`:                                                  0,
		`SELECT * FROM events ORDER BY time DESC`:                                                       0,
		`SELECT * FROM events ORDER BY time DESC LIMIT 10000`:                                           10_000,
		`SELECT * FROM events ORDER BY time DESC LIMIT 9999 OFFSET 1`:                                   9_999,
		`SELECT * FROM events ORDER BY time DESC LIMIT 10000 OFFSET 1`:                                  0,
		`SELECT * FROM events ORDER BY time DESC LIMIT 100000`:                                          0,
		`SELECT * FROM events ORDER BY time DESC LIMIT 10%`:                                             0,
		`SELECT * FROM events ORDER BY id DESC LIMIT 10`:                                                0,
		`SELECT * FROM events ORDER BY time DESC NULLS FIRST LIMIT 10`:                                  0,
		`SELECT id AS time FROM events ORDER BY time DESC LIMIT 10`:                                     0,
		`SELECT * REPLACE (now() AS time) FROM events ORDER BY time DESC LIMIT 10`:                      0,
		`SELECT DISTINCT time FROM events ORDER BY time DESC LIMIT 10`:                                  0,
		`SELECT time, count(*) FROM events GROUP BY time ORDER BY time DESC LIMIT 10`:                   0,
		`SELECT max(time) AS time FROM events ORDER BY time DESC LIMIT 10`:                              0,
		`SELECT time, row_number() OVER () FROM events ORDER BY time DESC LIMIT 10`:                     0,
		`SELECT * FROM events WHERE id IN (SELECT id FROM events) ORDER BY time DESC LIMIT 10`:          0,
		`SELECT a.time FROM events a JOIN events b USING (id) ORDER BY a.time DESC LIMIT 10`:            0,
		`EXPLAIN SELECT * FROM events ORDER BY time DESC LIMIT 100`:                                     0,
		`WITH x AS (SELECT 1) SELECT * FROM events ORDER BY time DESC LIMIT 100`:                        0,
	} {
		s, err := c.parse(sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if got := latestOf(s, table); got != want {
			t.Errorf("%s: got %d, want %d", sql, got, want)
		}
	}
}

func TestLatestSteps(t *testing.T) {
	var s selection
	for i := range 100 {
		s.files = append(s.files, &manifest.File{Name: fmt.Sprint(i), Rows: 50_000, MinTime: int64(i * 1000), MaxTime: int64(i*1000 + 1500)})
	}
	var sizes []int
	for _, step := range s.latestSteps(100) {
		sizes = append(sizes, len(step.files))
		for _, f := range s.files {
			if !slices.Contains(step.files, f) && f.MaxTime >= *step.after {
				t.Errorf("file %s has rows from %d on and is left out", f.Name, *step.after)
			}
		}
	}
	if !slices.Equal(sizes, []int{1, 7, 100}) {
		t.Errorf("steps of %v files", sizes)
	}
}

// Queries whose files and frames are chosen have the rows of those that read all.
func TestChosenFilesHaveAllRows(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events")
	const day = 86400
	number := uint64(0)
	for _, first := range []int{0, 3 * day, day, 2 * day, day + 5000, 5 * day} { // some late
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

// The newest rows are found in the first step that has enough of them.
func TestNewestRowsAcrossSteps(t *testing.T) {
	f := newFolder(t, Options{})
	table := f.addTable("events", column(5, "key", event.String), column(6, "amount", event.Float64))
	f.addFiles(table, 12, 40_000)
	f.appendFrame(1, frameOf(table, 1000, testRow(470_000))) // among the newest of the files
	for _, where := range []string{`true`, `id < 300000`, `id = 7`, `id < 0`, `event = 'event-3'`} {
		for _, limit := range []string{`LIMIT 5`, `LIMIT 700 OFFSET 400`, `LIMIT 9000`} {
			chosen := `SELECT id, key FROM events WHERE ` + where + ` ORDER BY time DESC, key ` + limit
			f.want(chosen, f.ask(`SELECT id, key FROM (SELECT * FROM events) WHERE `+where+` ORDER BY time DESC, key `+limit))
		}
	}
}
