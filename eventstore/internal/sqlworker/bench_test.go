//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

func BenchmarkStart(b *testing.B) {
	f := newFolder(b, Options{})
	for b.Loop() {
		f.ask(`SELECT 1`)
		f.worker(protocol.QueryRole).end()
	}
}

func BenchmarkQuery(b *testing.B) {
	f := newFolder(b, Options{})
	table := f.addTable("events", column(5, "amount", event.Float64), column(6, "data", event.JSON), column(7, "n", event.Int64))
	for i := range 300 {
		f.appendFrame(1, frameOf(table, 1000, testRow(i*1000)))
	}
	for _, q := range []struct{ name, sql string }{
		{"Nothing", `SELECT 1`},
		{"Count", `SELECT count(*) FROM events`},
		{"Group", `SELECT event, count(*), avg(amount) FROM events GROUP BY 1`},
		{"Point", `SELECT * FROM events WHERE id = 123456`},
		{"Rows", `SELECT id, time, event FROM events LIMIT 100000`},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				f.ask(q.sql)
			}
		})
	}
}

// benchTable adds a table of ten columns, and benchRow fills their rows: columns with few
// distinct values, with many, and with unique ones.
func (f *folder) benchTable() *manifest.Table {
	return f.addTable("events", column(5, "user", event.Int64), column(6, "hash", event.String), column(7, "country", event.String), column(8, "url", event.String),
		column(9, "value", event.Float64), column(10, "status", event.Int64), column(11, "meta", event.JSON))
}

func benchRow(first int) func(c manifest.Column, v *event.Vector, row int) {
	return func(c manifest.Column, v *event.Vector, row int) {
		id := first + row
		mixed := uint64(id) * 0x9e3779b97f4a7c15
		switch c.Name {
		case "id":
			v.Ints = append(v.Ints, int64(id))
		case "time":
			v.Ints = append(v.Ints, testDay.UnixMicro()+int64(id)*2000)
		case "event":
			addText(v, [...]string{"view", "click", "open", "search", "sent", "login"}[mixed>>32%6])
		case "user":
			v.Ints = append(v.Ints, int64(mixed>>32%100_000))
		case "hash":
			addText(v, fmt.Sprintf("%016x", mixed))
		case "country":
			addText(v, fmt.Sprint("country-", mixed>>40%40))
		case "url":
			addText(v, fmt.Sprintf("https://shop.example.com/products/item-%d?from=mail", mixed>>32%50_000))
		case "value":
			v.Floats = append(v.Floats, float64(mixed>>32%100_000)/100)
		case "status":
			v.Ints = append(v.Ints, int64(200+mixed>>48%8))
		case "meta":
			addText(v, fmt.Sprintf(`{"device":"phone","list":%d}`, mixed>>32%1200))
		}
	}
}

// BenchmarkSegment seals a log file of half a million rows.
func BenchmarkSegment(b *testing.B) {
	const frames, rows = 500, 1000
	f := newFolder(b, Options{})
	table := f.benchTable()
	for i := range frames {
		f.appendFrame(1, frameOf(table, rows, benchRow(i*rows)))
	}
	number := f.m.NextSegment
	for b.Loop() {
		if _, err := f.client.WriteSegment(b.Context(), protocol.Segment{Version: f.m.Version, Log: f.ends[0], Number: number}); err != nil {
			b.Fatal(err)
		}
		number++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames*rows), "ns/row")
}

// addFiles adds Parquet files with rows events each, one per second.
func (f *folder) addFiles(t *manifest.Table, files, rows int) {
	f.t.Helper()
	c := openTestConn(f.t)
	for i := range files {
		first := i * rows
		from := testDay.Add(time.Duration(first) * time.Second)
		day := from.Format(time.DateOnly)
		file := &manifest.File{Name: manifest.FileName(day, f.m.NextSegment, 0), Segment: f.m.NextSegment, Schema: 1, Day: day, Rows: int64(rows), Log: 0,
			MinTime: from.UnixMicro(), MaxTime: from.Add(time.Duration(rows-1) * time.Second).UnixMicro()}
		path := t.Path(f.path, file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			f.t.Fatal(err)
		}
		if err := c.Exec(fmt.Sprintf(`COPY (SELECT i AS id, make_timestamp(%d + i * 1000000) AS time, 'event-' || (i %% 10) AS event, 'key-' || hash(i) AS key, random() AS amount
			FROM range(%d, %d) t(i) ORDER BY event, time) TO %s (FORMAT parquet, COMPRESSION zstd)`, testDay.UnixMicro(), first, first+rows, sqltext.Literal(path))); err != nil {
			f.t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			f.t.Fatal(err)
		}
		file.Bytes = info.Size()
		t.Files = append(t.Files, file)
		f.m.NextSegment++
	}
	f.save()
}

func BenchmarkFiles(b *testing.B) {
	for _, files := range []int{20, 2000} {
		f := newFolder(b, Options{})
		table := f.addTable("events", column(5, "key", event.String), column(6, "amount", event.Float64))
		const rows = 4_000_000
		f.addFiles(table, files, rows/files)
		end := testDay.Add(rows * time.Second)
		for _, q := range []struct{ name, sql string }{
			{"Last15Minutes", `SELECT event, count(*), avg(amount) FROM events WHERE time >= TIMESTAMP '` + end.Add(-15*time.Minute).Format(time.DateTime) + `' GROUP BY 1`},
			{"Latest100", `SELECT * FROM events WHERE event = 'event-3' ORDER BY time DESC LIMIT 100`},
			{"All", `SELECT event, count(*), avg(amount) FROM events GROUP BY 1`},
			{"Rare", `SELECT * FROM events WHERE key = 'key-' || hash(1234567)`},
			{"Event", `SELECT count(*) FROM events WHERE event = 'event-3' AND amount < 0.1`},
		} {
			b.Run(fmt.Sprintf("%s/%d", q.name, files), func(b *testing.B) {
				for b.Loop() {
					f.ask(q.sql)
				}
			})
		}
	}
}
