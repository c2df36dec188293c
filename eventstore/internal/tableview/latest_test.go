//go:build linux && cgo

package tableview

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

// TestCutNewest estimates the time from which there is a given number of rows.
func TestCutNewest(t *testing.T) {
	parts := []part{{0, 99, 100}, {50, 149, 100}, {1000, 1000, 7}}
	for _, test := range []struct {
		rows, after int64
		ok          bool
	}{{7, 1000, true}, {8, 149, true}, {57, 100, true}, {206, 1, true}, {207, 0, false}, {1000, 0, false}} {
		after, ok := cutNewest(parts, test.rows)
		if ok != test.ok || ok && (after > test.after || rowsFrom(parts, after) < float64(test.rows)) || ok && rowsFrom(parts, after+1) >= float64(test.rows) {
			t.Errorf("the newest %d rows: from %d on, %v; want %d, %v", test.rows, after, ok, test.after, test.ok)
		}
	}
	for after, want := range map[int64]float64{1001: 0, 1000: 7, 150: 7, 149: 8, 99: 7 + 51 + 1, 0: 207, -50: 207} {
		if got := rowsFrom(parts, after); math.Abs(got-want) > 1e-9 {
			t.Errorf("from %d on there are %v rows, want %v", after, got, want)
		}
	}
}

func TestLatest(t *testing.T) {
	c := storetest.OpenConn(t)
	table := &manifest.Table{Name: "events", Time: "time", Schemas: []*manifest.Schema{{Version: 1, Columns: []manifest.Column{
		storetest.Column(2, "id", event.Int64), storetest.Column(3, "time", event.Timestamp), storetest.Column(4, "event", event.String),
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
		s, err := statement.Parse(c, sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if got := LatestOf(s, table); got != want {
			t.Errorf("%s: got %d, want %d", sql, got, want)
		}
	}
}

func TestLatestSteps(t *testing.T) {
	var s Selection
	for i := range 100 {
		s.Files = append(s.Files, &manifest.File{Name: fmt.Sprint(i), Rows: 50_000, MinTime: int64(i * 1000), MaxTime: int64(i*1000 + 1500)})
	}
	var sizes []int
	for _, step := range s.LatestSteps(100) {
		sizes = append(sizes, len(step.Files))
		for _, f := range s.Files {
			if !slices.Contains(step.Files, f) && f.MaxTime >= *step.after {
				t.Errorf("file %s has rows from %d on and is left out", f.Name, *step.after)
			}
		}
	}
	if !slices.Equal(sizes, []int{1, 7, 100}) {
		t.Errorf("got steps of %v files, want [1 7 100]", sizes)
	}
}
