//go:build linux && cgo

package sqlworker

import (
	"fmt"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/eventstore/internal/sqlclient"
	"github.com/perigeedb/perigee/eventstore/internal/storetest"
)

func BenchmarkQuery(b *testing.B) {
	f := newFolder(b, sqlclient.Options{})
	table := f.AddTable("events", storetest.Column(5, "amount", event.Float64), storetest.Column(6, "data", event.JSON), storetest.Column(7, "n", event.Int64))
	for i := range 300 {
		f.AppendFrame(1, storetest.FrameOf(table, 1000, storetest.Row(i*1000)))
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
				f.Ask(q.sql)
			}
		})
	}
}

// benchTable adds a table of ten columns, and benchRow fills their rows: columns with few
// distinct values, with many, and with unique ones.
func (f *folder) benchTable() *manifest.Table {
	return f.AddTable("events", storetest.Column(5, "user", event.Int64), storetest.Column(6, "hash", event.String), storetest.Column(7, "country", event.String), storetest.Column(8, "url", event.String),
		storetest.Column(9, "value", event.Float64), storetest.Column(10, "status", event.Int64), storetest.Column(11, "meta", event.JSON))
}

func benchRow(first int) func(c manifest.Column, v *event.Vector, row int) {
	return func(c manifest.Column, v *event.Vector, row int) {
		id := first + row
		mixed := uint64(id) * 0x9e3779b97f4a7c15
		switch c.Name {
		case "id":
			v.Ints = append(v.Ints, int64(id))
		case "time":
			v.Ints = append(v.Ints, storetest.Day.UnixMicro()+int64(id)*2000)
		case "event":
			storetest.AddText(v, [...]string{"view", "click", "open", "search", "sent", "login"}[mixed>>32%6])
		case "user":
			v.Ints = append(v.Ints, int64(mixed>>32%100_000))
		case "hash":
			storetest.AddText(v, fmt.Sprintf("%016x", mixed))
		case "country":
			storetest.AddText(v, fmt.Sprint("country-", mixed>>40%40))
		case "url":
			storetest.AddText(v, fmt.Sprintf("https://shop.example.com/products/item-%d?from=mail", mixed>>32%50_000))
		case "value":
			v.Floats = append(v.Floats, float64(mixed>>32%100_000)/100)
		case "status":
			v.Ints = append(v.Ints, int64(200+mixed>>48%8))
		case "meta":
			storetest.AddText(v, fmt.Sprintf(`{"device":"phone","list":%d}`, mixed>>32%1200))
		}
	}
}

// BenchmarkSegment seals a log file of half a million rows.
func BenchmarkSegment(b *testing.B) {
	const frames, rows = 500, 1000
	f := newFolder(b, sqlclient.Options{})
	table := f.benchTable()
	for i := range frames {
		f.AppendFrame(1, storetest.FrameOf(table, rows, benchRow(i*rows)))
	}
	number := f.M.NextSegment
	for b.Loop() {
		if _, err := f.client.WriteSegment(b.Context(), protocol.Segment{Version: f.M.Version, Log: f.Ends[0], Number: number}); err != nil {
			b.Fatal(err)
		}
		number++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames*rows), "ns/row")
}

func BenchmarkFiles(b *testing.B) {
	for _, files := range []int{20, 2000} {
		f := newFolder(b, sqlclient.Options{})
		table := f.AddTable("events", storetest.Column(5, "key", event.String), storetest.Column(6, "amount", event.Float64))
		const rows = 4_000_000
		f.AddFiles(table, files, rows/files)
		end := storetest.Day.Add(rows * time.Second)
		for _, q := range []struct{ name, sql string }{
			{"Last15Minutes", `SELECT event, count(*), avg(amount) FROM events WHERE time >= TIMESTAMP '` + end.Add(-15*time.Minute).Format(time.DateTime) + `' GROUP BY 1`},
			{"Latest100", `SELECT * FROM events WHERE event = 'event-3' ORDER BY time DESC LIMIT 100`},
			{"All", `SELECT event, count(*), avg(amount) FROM events GROUP BY 1`},
			{"Rare", `SELECT * FROM events WHERE key = 'key-' || hash(1234567)`},
			{"Event", `SELECT count(*) FROM events WHERE event = 'event-3' AND amount < 0.1`},
		} {
			b.Run(fmt.Sprintf("%s/%d", q.name, files), func(b *testing.B) {
				for b.Loop() {
					f.Ask(q.sql)
				}
			})
		}
	}
}
