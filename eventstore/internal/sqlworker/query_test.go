//go:build linux && cgo

package sqlworker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

func TestHotRows(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "amount", event.Float64), storetest.Column(6, "flag", event.Bool), storetest.Column(7, "data", event.JSON), storetest.Column(8, "small", event.Int32))
	rows := 0
	for _, n := range []int{1, 10, 3000, 7, 1000} {
		f.AppendFrame(1, storetest.FrameOf(table, n, storetest.Row(rows)))
		rows += n
	}
	f.Want(`SELECT count(*), count(DISTINCT id), min(id), max(id) FROM events`, "4018,4018,0,4017")
	f.Want(`SELECT count(*) FROM events`, "4018")
	f.Want(`SELECT sum(amount), count(flag), bool_and(flag), max(data->>'id'), sum(small) FROM events WHERE id < 10`, "22.5,5,true,9,5")
	f.Want(`SELECT event, count(*) FROM events GROUP BY 1 ORDER BY 1 LIMIT 2`, "event--0,402\nevent-x-1,402")
	f.Want(`SELECT time, event FROM events WHERE id = 3017`, "2026-11-22 00:50:17,event-xxxxxxx-7")
	f.Want(`DESCRIBE events`, "id,BIGINT,YES,,,\ntime,TIMESTAMP,YES,,,\nevent,VARCHAR,YES,,,\namount,DOUBLE,YES,,,\nflag,BOOLEAN,YES,,,\ndata,JSON,YES,,,\nsmall,INTEGER,YES,,,")
	f.Want(`SHOW TABLES`, "events")
	f.AppendFrame(2, storetest.FrameOf(table, 5, storetest.Row(rows)))
	f.Want(`SELECT count(*), count(DISTINCT id) FROM events`, "4023,4023")
	f.M.LogStart = 2
	f.Save()
	f.Want(`SELECT count(*) FROM events`, "5")
}

func TestNoRows(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.AddTable("events")
	f.Want(`SELECT count(*) FROM events`, "0")
	f.Want(`FROM events`, "")
	f.Want(`SELECT 1`, "1")
}

// TestCatalog lists the tables in each way, as the first query of a worker, before it has
// read any table. A table with the name of a catalog table makes no difference.
func TestCatalog(t *testing.T) {
	for _, test := range []struct{ name, sql string }{
		{"other", `SELECT name FROM (SHOW TABLES) WHERE name = 'events'`},
		{"tables", `SELECT table_name FROM information_schema.tables WHERE table_name = 'events'`},
		{"pg_views", `SELECT viewname FROM pg_catalog.pg_views WHERE viewname = 'events'`},
		{"duckdb_views", `SELECT view_name FROM duckdb_views() WHERE view_name = 'events'`},
		{"duckdb_views", `SELECT view_name FROM system.main.duckdb_views WHERE view_name = 'events'`},
	} {
		f := newFolder(t, sqlclient.Options{})
		f.AddTable(test.name)
		f.AddTable("events")
		f.Want(test.sql, "events")
	}
}

func TestSchemaVersions(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "n", event.Int64), storetest.Column(6, "text", event.String))
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(0)))
	old := table.Current()
	grow := func(change func(columns []manifest.Column) []manifest.Column) {
		next := &manifest.Schema{Version: table.Current().Version + 1, Columns: change(append([]manifest.Column{}, table.Current().Columns...))}
		table.Schemas = append(table.Schemas, next)
		table.NextColumn = 20
		f.Save()
	}
	_ = old
	grow(func(c []manifest.Column) []manifest.Column {
		return append(c, storetest.Column(7, "added", event.Float64))
	})
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(10)))
	grow(func(c []manifest.Column) []manifest.Column {
		c[3].Type, c[4].Type = event.Float64, event.JSON
		return append(c, storetest.Column(8, "nothing", 0))
	})
	f.AppendFrame(1, storetest.FrameOf(table, 10, storetest.Row(20)))
	f.Want(`SELECT count(*), count(added), sum(added), count(nothing) FROM events`, "30,20,195,0")
	f.Want(`SELECT id, n, text FROM events WHERE id IN (0, 20) ORDER BY id`, "0,1,\"text 0\"\n20,10,{\"id\": 20}")
	f.Want(`SELECT column_type FROM (DESCRIBE events)`, "BIGINT\nTIMESTAMP\nVARCHAR\nDOUBLE\nJSON\nDOUBLE\nINTEGER")
}

func TestParameters(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 100, storetest.Row(0)))
	got := f.Ask(`SELECT count(*) FROM events WHERE id < ? AND time >= ? AND event LIKE ?`, protocol.Param{Value: 50}, protocol.Param{Value: storetest.Day.Add(10 * time.Second)}, protocol.Param{Value: "%-1"})
	if got != "4" {
		t.Errorf("got %s", got)
	}
	if got := f.Ask(`SELECT $a, $b, $a`, protocol.Param{Name: "b", Value: "x"}, protocol.Param{Name: "a", Value: nil}); got != ",x," {
		t.Errorf("got %s", got)
	}
	for _, params := range [][]protocol.Param{nil, {{Value: 1}, {Value: 2}}, {{Name: "y", Value: 1}}} {
		if _, err := storetest.Read(f.Query(t.Context(), `SELECT $x`, params...)); err == nil {
			t.Errorf("%v was taken", params)
		}
	}
}

func TestLimits(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	ask := func(sql string, limits protocol.Limits) (*sqlclient.Rows, error) {
		return f.client.Query(t.Context(), sqlclient.Query{Version: f.M.Version, SQL: sql, Limits: limits})
	}
	rows, err := ask(`FROM range(10000)`, protocol.Limits{Rows: 3000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		n++
	}
	if n != 3000 || !rows.Truncated() || rows.Err() != nil {
		t.Errorf("got %d rows, truncated %v, error %v, want 3000 and truncated", n, rows.Truncated(), rows.Err())
	}
	rows.Close()
	begin := time.Now()
	_, err = storetest.Read(ask(endless, protocol.Limits{Time: 100 * time.Millisecond}))
	if q, ok := errors.AsType[*event.Fault](err); !ok || q.Message != "the query took longer than 100ms" || time.Since(begin) > time.Minute {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	_, err = storetest.Read(ask(`SELECT list(i) FROM range(100000000) t(i)`, protocol.Limits{Memory: 64 << 20}))
	if q, ok := errors.AsType[*event.Fault](err); !ok || q.Message != protocol.ErrQueryMemory.Message {
		t.Errorf("a query beyond its memory: %v", err)
	}
	f.Want(`SELECT 1`, "1")
}

// TestGrowingResults requests results that are much larger than their inputs.
func TestGrowingResults(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	for sql, want := range map[string]string{
		`SELECT repeat('x', 1001)`:                                           "repeat: argument 2 must be a constant of at most 1000",
		`SELECT format('{:1000}', 1)`:                                        "widths",
		`SELECT concat_ws(x, 1) FROM (SELECT ',' AS x)`:                      "concat_ws: argument 1 must be a constant",
		`SELECT list_transform([1], lambda x: y) FROM (SELECT [2] AS y)`:     "only its own parameters",
		`SELECT repeat(repeat('x', 300), 300)`:                               "multiply the size",
		`SELECT repeat('x', 300) a, repeat(a, 300) b`:                        "multiply the size",
		`SELECT repeat(s, 300) FROM (SELECT repeat('x', 300) s)`:             "multiply the size",
		`WITH a AS (SELECT repeat('x', 300) s) SELECT repeat(s, 300) FROM a`: "multiply the size",
	} {
		_, err := storetest.Read(f.Query(t.Context(), sql))
		if q, ok := errors.AsType[*event.Fault](err); !ok || !strings.Contains(q.Message, want) {
			t.Errorf("%s: %v, want %q", sql, err, want)
		}
	}
	f.Want(`SELECT length(repeat('x', 300)), length(repeat('y', 300))`, "300,300")
}

// endless runs for hours and returns rows only at its end.
const endless = `SELECT count(*) FROM range(100000000000) a(i) WHERE hash(i) = 1`

func TestCancel(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.Want(`SELECT 1`, "1")
	pid := f.worker(protocol.QueryRole).PID
	for _, delay := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		_, err := storetest.Read(f.Query(ctx, endless))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", delay, err)
		}
	}
	rows, err := f.Query(t.Context(), `SELECT i, repeat('x', 1000) AS text FROM range(1000000000) t(i)`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		if !rows.Next() || rows.Row()[0] != int64(i) {
			t.Fatalf("row %d: got %v and error %v, want %d", i, rows.Row(), rows.Err(), i)
		}
	}
	begin := time.Now()
	rows.Close()
	if rows.Next() || time.Since(begin) > time.Minute { // reading all rows takes hours
		t.Errorf("the result goes on %v after Close", time.Since(begin))
	}
	f.Want(`SELECT 1`, "1")
	if now := f.worker(protocol.QueryRole).PID; now != pid {
		t.Error("the worker was killed")
	}
}

func TestValues(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	for sql, want := range map[string]any{
		`NULL`: nil, `true`: true, `1::TINYINT`: int64(1), `-5::SMALLINT`: int64(-5), `1::UBIGINT`: uint64(1), `7::UINTEGER`: int64(7),
		`1.5::FLOAT`: float32(1.5), `1.5::DOUBLE`: 1.5, `12.30::DECIMAL(10,2)`: protocol.Number("12.30"), `-0.05::DECIMAL(4,2)`: protocol.Number("-0.05"),
		`'x'`: "x", `'{"a": 1}'::JSON`: protocol.JSON(`{"a": 1}`), `'\x01a'::BLOB`: []byte("\x01a"), `170141183460469231731687303715884105727::HUGEINT`: protocol.Number("170141183460469231731687303715884105727"),
		`340282366920938463463374607431768211455::UHUGEINT`: protocol.Number("340282366920938463463374607431768211455"),
		`'2026-11-22'::DATE`: "2026-11-22", `'12:34:56.5'::TIME`: "12:34:56.5", `INTERVAL '1 month 2 days 3 seconds'`: "1 month 2 days 00:00:03", `INTERVAL '1 hour 5 seconds'`: "01:00:05", `INTERVAL '-14 months -1 day -90.5 seconds'`: "-1 year -2 months -1 day -00:01:30.5", `INTERVAL '100 hours'`: "100:00:00", `INTERVAL 0 DAY`: "00:00:00",
		`'2026-11-22 01:02:03'::TIMESTAMP`: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), `'2026-11-22 01:02:03.000000004'::TIMESTAMP_NS`: time.Date(2026, 11, 22, 1, 2, 3, 4, time.UTC),
		`'2026-11-22 01:02:03'::TIMESTAMP_S`: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC), `'2026-11-22 01:02:03+01'::TIMESTAMPTZ`: time.Date(2026, 11, 22, 0, 2, 3, 0, time.UTC),
		`'infinity'::TIMESTAMP`: "infinity", `'-infinity'::TIMESTAMP`: "-infinity", `'b'::ENUM('a', 'b')`: "b",
		`'00112233-4455-6677-8899-aabbccddeeff'::UUID`: "00112233-4455-6677-8899-aabbccddeeff", `[1, NULL, 3]`: []any{int64(1), nil, int64(3)},
		`[1, 2]::INTEGER[2]`: []any{int64(1), int64(2)}, `{'a': 1, 'b': ['x']}`: protocol.Struct{{Name: "a", Value: int64(1)}, {Name: "b", Value: []any{"x"}}},
		`MAP {'k': 1.5::DOUBLE}`: protocol.Struct{{Name: "k", Value: 1.5}}, `[['[1]'::JSON]]`: []any{[]any{protocol.JSON("[1]")}},
	} {
		rows, err := f.Query(t.Context(), "SELECT "+sql)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if !rows.Next() {
			t.Errorf("%s: %v", sql, rows.Err())
		} else if got := rows.Row()[0]; fmt.Sprintf("%T %#v", got, got) != fmt.Sprintf("%T %#v", want, want) {
			t.Errorf("%s: got %T %#v, want %T %#v", sql, got, got, want, want)
		}
		rows.Close()
	}
	if _, err := storetest.Read(f.Query(t.Context(), `SELECT '101'::BIT`)); err == nil {
		t.Error("a BIT was sent")
	}
}

// TestQuerySortsOnDisk answers a query that needs more memory than its limit, but less if it
// spills to disk.
func TestQuerySortsOnDisk(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	rows, err := f.client.Query(t.Context(), sqlclient.Query{
		Version: f.M.Version, Limits: protocol.Limits{Memory: 48 << 20},
		SQL: `SELECT count(*), min(x) < max(x) FROM (SELECT hash(i) AS x, i FROM range(6000000) t(i) ORDER BY x, i OFFSET 1)`,
	})
	found, err := storetest.Read(rows, err)
	if err != nil || found != "5999999,true" {
		t.Errorf("got %q and error %v, want 5999999,true", found, err)
	}
}

func TestPivot(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events")
	f.AppendFrame(1, storetest.FrameOf(table, 40, storetest.Row(0)))
	const values = `('event--0' AS none, 'event-x-1' AS one)`
	for sql, want := range map[string]string{
		`PIVOT (SELECT event, id % 2 AS odd FROM events) ON event IN ` + values + ` USING count(*) ORDER BY odd`:                         "0,4,0\n1,0,4",
		`SELECT * FROM (SELECT event, id % 2 AS odd FROM events) PIVOT (count(*) FOR event IN ` + values + ` GROUP BY odd) ORDER BY odd`: "0,4,0\n1,0,4",
		`SELECT name, count(*) FROM (SELECT id, event FROM events) UNPIVOT (value FOR name IN (event)) GROUP BY name`:                    "event,40",
	} {
		f.Want(sql, want)
	}
	for _, sql := range []string{`PIVOT events ON event USING count(*)`, "\n pivot events ON event USING sum(id) GROUP BY time", `FROM (PIVOT events ON event USING count(*))`} {
		_, err := storetest.Read(f.Query(t.Context(), sql))
		if q, _ := err.(*event.Fault); q == nil || q.Message != "PIVOT must list its values" || !strings.Contains(q.Hint, "ON event IN (") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestUnknownFunctions(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.AddTable("events")
	for sql, want := range map[string]string{
		"SELECT cuont(*) FROM events":            "line 1, column 8: function cuont is not allowed (did you mean count? perigee list functions lists the allowed functions)",
		"SELECT 1,\n  'ä', Summ(id) FROM events": "line 2, column 8: function summ is not allowed (did you mean sum? perigee list functions lists the allowed functions)",
		"EXPLAIN SELECT cuont(*) FROM events":    "line 1, column 16: function cuont is not allowed (did you mean count? perigee list functions lists the allowed functions)",
		"FROM time_bucket(1)":                    "line 1, column 6: function time_bucket is not allowed (did you mean time_buckets? perigee list functions lists the allowed functions)",
		"SELECT getenv('HOME')":                  "line 1, column 8: function getenv is not allowed (perigee list functions lists the allowed functions)",
	} {
		_, err := storetest.Read(f.Query(t.Context(), sql))
		if got := withHint(err); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", sql, got, want)
		}
	}
	err := f.client.CheckPredicate(t.Context(), f.M.Version, 1, "id = 1 AND cuont(id) = 1")
	if want := "line 1, column 12: function cuont is not allowed (did you mean count? perigee list functions lists the allowed functions)"; withHint(err) != want {
		t.Errorf("a predicate: got %s\nwant %s", withHint(err), want)
	}
}

// withHint returns the text of an error with its hint.
func withHint(err error) string { return fmt.Sprintf("%v (%s)", err, event.HintOf(err)) }
