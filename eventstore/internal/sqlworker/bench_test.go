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
)

func BenchmarkStart(b *testing.B) {
	f := newFolder(b, Options{})
	for b.Loop() {
		f.ask(`SELECT 1`)
		f.client.shared[queryRole].end()
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

// addFiles adds Parquet files with so many seconds of events each, one a second.
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
		if err := c.exec(fmt.Sprintf(`COPY (SELECT i AS id, make_timestamp(%d + i * 1000000) AS time, 'event-' || (i %% 10) AS event, 'key-' || hash(i) AS key, random() AS amount
			FROM range(%d, %d) t(i) ORDER BY event, time) TO %s (FORMAT parquet, COMPRESSION zstd)`, testDay.UnixMicro(), first, first+rows, literal(path))); err != nil {
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
