//go:build linux && cgo

package sqlworker

import (
	"testing"

	"github.com/perigeedb/perigee/event"
)

func BenchmarkStart(b *testing.B) {
	f := newFolder(b, Options{})
	for b.Loop() {
		f.ask(`SELECT 1`)
		f.client.queries.end()
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
