//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// oddRow fills a row with the two zeros of doubles and with bytes that SQL writes as \x.
func oddRow(c manifest.Column, v *event.Vector, row int) {
	switch c.Name {
	case "f":
		text := [...]string{"-0.0", "0", "5.5"}[row%3]
		var f float64
		fmt.Sscan(text, &f)
		if text == "-0.0" {
			f = -1 / inf
		}
		v.Floats = append(v.Floats, f)
	case "b":
		storetest.AddText(v, [...]string{"\x00", "\x00\x00", "\x01", "a", "a\x00", "\xff"}[row%6])
	case "s":
		storetest.AddText(v, [...]string{"\x00", "\x00\x00", "", "a", "a\x00", "b"}[row%6])
	default:
		storetest.Row(0)(c, v, row)
	}
}

var inf = func() float64 { zero := 0.0; return 1 / zero }()

// addFiltersOfDuckDB rewrites a table's files as versions before FileFormat wrote them.
func (f *folder) addFiltersOfDuckDB(t *manifest.Table) {
	f.T.Helper()
	c := storetest.OpenConn(f.T)
	for _, file := range t.Files {
		path := t.Path(f.Path, file.Name)
		if err := c.Exec(fmt.Sprintf("COPY (FROM read_parquet(%s, hive_partitioning = false)) TO %s (FORMAT parquet, PARQUET_VERSION V2, COMPRESSION zstd, ROW_GROUP_SIZE 16384, DICTIONARY_SIZE_LIMIT 4096)", sqltext.Literal(path), sqltext.Literal(path+".old"))); err != nil {
			f.T.Fatal(err)
		}
		if err := os.Rename(path+".old", path); err != nil {
			f.T.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			f.T.Fatal(err)
		}
		file.Bytes, file.Format = info.Size(), 0
	}
	f.Save()
}

var oddPredicates = []struct {
	where string
	rows  int
}{
	{`f = 0`, 400}, {`f = '-0.0'::DOUBLE`, 400}, {`f IN (0, 7)`, 400}, {`f <= 0 AND f >= 0`, 400}, {`f = 5.5`, 200}, {`f IS NOT DISTINCT FROM 0`, 400},
	{`b = '\x00'::BLOB`, 100}, {`b = '\x01'::BLOB`, 100}, {`b IN ('\x00\x00'::BLOB)`, 100}, {`b = 'a\x00'::BLOB`, 100}, {`b = '\xFF'::BLOB`, 100}, {`b = 'a'::BLOB`, 100},
	{`f = 0 AND signbit(f)`, 200}, {`f = 0 AND NOT signbit(f)`, 200},
	{`s = chr(0)`, 100}, {`s = ''`, 100}, {`s = 'a' || chr(0)`, 100},
}

func wantOddRows(t *testing.T, f *folder, when string) {
	t.Helper()
	for _, p := range oddPredicates {
		if got, want := f.Ask(`SELECT count(*) FROM events WHERE `+p.where), fmt.Sprint(p.rows); got != want {
			t.Errorf("%s, WHERE %s: got %s rows, want %s", when, p.where, got, want)
		}
	}
}

func oddFolder(t *testing.T) (*folder, *manifest.Table) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "f", event.Float64), storetest.Column(6, "b", event.Bytes), storetest.Column(7, "s", event.String))
	f.AppendFrame(1, storetest.FrameOf(table, 600, oddRow))
	wantOddRows(t, f, "hot")
	f.Seal(1)
	return f, table
}

// TestZerosAndBytesInFiles checks that predicates find both zeros, and bytes of any value, in
// sealed files.
func TestZerosAndBytesInFiles(t *testing.T) {
	f, table := oddFolder(t)
	wantOddRows(t, f, "sealed")
	f.AppendFrame(2, storetest.FrameOf(table, 600, storetest.Row(0)))
	f.Seal(2)
	f.MergeAll(table)
	if n := len(table.Files); n != 1 {
		t.Fatalf("got %d files, want 1", n)
	}
	f.Want(`SELECT count(*) FROM events WHERE f = 0 AND signbit(f)`, "200")
}

// TestFilesWithFiltersOfDuckDB checks files of earlier versions, with bloom filters of DuckDB
// that miss values. Reads ignore the filters, also for a range of rows, and a merge writes
// files without them.
func TestFilesWithFiltersOfDuckDB(t *testing.T) {
	f, table := oddFolder(t)
	f.AppendFrame(2, storetest.FrameOf(table, 600, oddRow))
	f.Seal(2)
	f.addFiltersOfDuckDB(table)
	for _, p := range oddPredicates {
		if strings.Contains(p.where, "signbit") { // these files have lost the sign
			continue
		}
		if got, want := f.Ask(`SELECT count(*) FROM events WHERE `+p.where), fmt.Sprint(2*p.rows); got != want {
			t.Errorf("WHERE %s: got %s rows, want %s", p.where, got, want)
		}
	}
	f.MergeAll(table)
	if n := len(table.Files); n != 1 || table.Files[0].Format != manifest.FileFormat {
		t.Fatalf("%d files, the first of format %d, want one of %d", n, table.Files[0].Format, manifest.FileFormat)
	}
	if got := f.Ask(`SELECT count(*) FROM events WHERE f = 0`); got != "800" {
		t.Errorf("merged: got %s rows, want 800", got)
	}
}

// TestFilesHaveNoFiltersOfDuckDB checks that a file has column bounds and our bloom filters,
// but none of DuckDB's.
func TestFilesHaveNoFiltersOfDuckDB(t *testing.T) {
	f, table := oddFolder(t)
	rows, err := storetest.OpenConn(t).Run("SELECT count(*), count(bloom_filter_offset) FROM parquet_metadata(" + sqltext.Literal(table.Path(f.Path, table.Files[0].Name)) + ")")
	if err != nil {
		t.Fatal(err)
	}
	if rows[0][0] == int64(0) || rows[0][1] != int64(0) {
		t.Errorf("got %v columns with a filter of DuckDB and %v in all, want 0 and some", rows[0][1], rows[0][0])
	}
}

// TestBoundsOfNanoseconds checks that a nanosecond time column applies the offset of a text,
// and that choosing files does too.
func TestBoundsOfNanoseconds(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "tm", event.TimestampNS))
	table.Time = "tm"
	f.Save()
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for hour := range uint64(48) {
		f.AppendFrame(hour+1, storetest.FrameOf(table, 1, func(c manifest.Column, v *event.Vector, row int) {
			if c.Name == "tm" {
				v.Ints = append(v.Ints, begin.Add(time.Duration(hour)*time.Hour).UnixNano())
				return
			}
			storetest.Row(int(hour))(c, v, row)
		}))
		if hour < 40 {
			f.Seal(hour + 1)
		}
	}
	for where, want := range map[string]string{
		`tm > '2026-01-06T00:00:00+05:30'`:                                       "29",
		`tm >= '2026-01-05T19:00:00.000000000Z'`:                                 "29",
		`tm < '2026-01-05T00:00:00-01:00'`:                                       "1",
		`tm < '2026-01-04T23:30:00-01:00'`:                                       "1",
		`tm BETWEEN '2026-01-06T00:00:00+05:30' AND '2026-01-06T02:00:00+05:30'`: "2",
		`tm = '2026-01-06T05:30:00+05:30'`:                                       "1",
		`tm < TIMESTAMP '2026-01-05T01:00:00+05:30'`:                             "1", // a cast to TIMESTAMP drops the offset
	} {
		if got := f.Ask(`SELECT count(*) FROM events WHERE ` + where); got != want {
			t.Errorf("%s: got %s rows, want %s", where, got, want)
		}
		if got := f.Ask(`SELECT count(*) FROM events WHERE ` + strings.ReplaceAll(where, "tm ", "CASE WHEN true THEN tm END ")); got != want {
			t.Errorf("%s of an expression: got %s rows, want %s", where, got, want)
		}
		if text := strings.Split(where, "'"); strings.HasPrefix(where, "tm >") {
			if got := f.Ask(`SELECT count(*) FROM events WHERE `+text[0]+`$t`, protocol.Param{Name: "t", Value: text[1]}); got != want {
				t.Errorf("%s as a parameter: got %s rows, want %s", where, got, want)
			}
		}
	}
}

// TestOffsetsAreRefused checks that an offset is rejected for a microsecond time column,
// which would drop it.
func TestOffsetsAreRefused(t *testing.T) {
	f := newFolder(t, sqlclient.Options{})
	f.AddTable("events", storetest.Column(5, "other", event.Timestamp), storetest.Column(6, "text", event.String))
	const text = `'2026-01-06T00:00:00+05:30'`
	for _, where := range []string{
		`time > ` + text, text + ` >= time`, `e.time = ` + text, `time BETWEEN '2026-01-01' AND ` + text, `time IN ('2026-01-01', ` + text + `)`, `time NOT IN (` + text + `)`,
		`other <> ` + text, `date_trunc('hour', time) > ` + text, `coalesce(other, time) > ` + text, `time IS DISTINCT FROM ` + text, `time > '2026-01-06 00:00-01'`,
		`(SELECT max(time) FROM events) < ` + text + ` AND time < ` + text, `id = 1 OR NOT time <= ` + text,
	} {
		sql := "SELECT 1\nFROM events e WHERE " + where
		_, err := storetest.Read(f.Query(t.Context(), sql))
		var q *event.Fault
		if q, _ = err.(*event.Fault); q == nil || !strings.Contains(q.Message, "drop the offset") || q.Line != 2 || q.Column < 20 {
			t.Errorf("%s: got %v", where, err)
		}
		if err := f.client.CheckPredicate(t.Context(), f.M.Version, 1, strings.ReplaceAll(where, "e.", "")); err == nil {
			t.Errorf("a delete takes %s", where)
		}
	}
	_, err := storetest.Read(f.Query(t.Context(), `SELECT 1 FROM events WHERE time > $from`, protocol.Param{Name: "from", Value: "2026-01-06T00:00:00+05:30"}))
	if want := "the comparison with column time would drop the offset of parameter from (write the time in UTC, '2026-01-05T18:30:00Z', or as TIMESTAMPTZ '2026-01-06T00:00:00+05:30')"; withHint(err) != want {
		t.Errorf("got %s\nwant %s", withHint(err), want)
	}
	nanos := newFolder(t, sqlclient.Options{})
	nanos.AddTable("events", storetest.Column(5, "ns", event.TimestampNS))
	if _, err := storetest.Read(nanos.Query(t.Context(), `SELECT 1 FROM events WHERE ns + INTERVAL 1 SECOND > `+text)); err == nil {
		t.Error("what is computed from nanoseconds is compared with a text with an offset")
	}
	for _, where := range []string{
		`time > TIMESTAMPTZ ` + text, `time > TIMESTAMP ` + text, `time > '2026-01-05T18:30:00Z'`, `time > '2026-01-05T18:30:00+00:00'`, `text > ` + text, `time > '2026-01-05'`,
	} {
		if _, err := storetest.Read(f.Query(t.Context(), `SELECT 1 FROM events WHERE `+where)); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}
