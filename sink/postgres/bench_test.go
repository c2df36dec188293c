package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink/sqltest"
	"github.com/perigeedb/perigee/sink/sinktest"
)

// emails are the columns of an ordinary table of events.
func emails() []sqlsink.Column {
	sized := func(name string, sql string) sqlsink.Column {
		c := column(name, event.String)
		c.SQL = sql
		return c
	}
	return []sqlsink.Column{
		column("id", event.Int64), sized("event", "VARCHAR(16)"), sized("email", "VARCHAR(100)"), column("campaign", event.Int32),
		column("time", event.Timestamp), sized("ip", "VARCHAR(45)"), sized("agent", "VARCHAR(200)"), column("meta", event.JSON),
	}
}

func emailRows(spec []event.Column, count, from int) *sinktest.OutputBuilder {
	r := sinktest.NewOutputBuilder(spec)
	for i := from; i < from+count; i++ {
		r.Add(int64(i), "click", fmt.Sprintf("user.%d@mail.example.com", i), int64(i%50), 1_700_000_000_000_000+int64(i)*977_000,
			fmt.Sprintf("10.0.%d.%d", i>>8&255, i&255), "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0",
			`{"batch":17,"tags":["a","b"],"subject":"Don't miss it"}`)
	}
	return r
}

// BenchmarkWrite measures the sink's own processor time, without the server's.
func BenchmarkWrite(b *testing.B) {
	for _, mode := range []sqlsink.Mode{sqlsink.Insert, sqlsink.Upsert, sqlsink.Ignore} {
		for _, lanes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/lanes=%d", mode, lanes), func(b *testing.B) { benchmarkWrite(b, mode, lanes) })
		}
	}
}

func benchmarkWrite(b *testing.B, mode sqlsink.Mode, lanes int) {
	const size = 1000
	g := newPlace(b, emails()...)
	g.config.Mode, g.config.PrimaryKey, g.config.Indexes = mode, []string{"id"}, []string{"campaign, time"}
	w := g.open()
	var next atomic.Uint64
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime()
	for lane := range lanes {
		group.Go(func() {
			r := emailRows(w.sink.columns, size, lane<<32)
			r.Output(0).Range.Fingerprints = make([]uint32, size)
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				ids := r.Output(0).Columns.Vectors[0].Ints
				for i := range ids {
					ids[i] = int64(n)*size + int64(i)
				}
				if err := w.Write(b.Context(), r.Output(n*size)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64((processorTime()-before).Nanoseconds())/float64(b.N)/size, "own-ns/row")
	b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkEncode(b *testing.B) {
	const size = 1000
	columns := emails()
	target := &sqlsink.Target{Dialect: newDialect("public"), Columns: columns}
	var found []sqlsink.TableColumn
	for i, typ := range []string{"int8", "varchar", "varchar", "int4", "timestamptz", "varchar", "varchar", "jsonb"} {
		found = append(found, sqlsink.TableColumn{Name: columns[i].Name, Type: typ, Scale: -1})
	}
	out, index := emailRows(sqlsink.Spec(columns), size, 0), upTo(size)
	for name, format := range map[string]format{"binary": newFormat(target, found), "text": newTextFormat(target, found)} {
		b.Run(name, func(b *testing.B) {
			var data []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if data, err = format.append(data[:0], out.Output(0).Columns, index, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/row")
			b.SetBytes(int64(len(data)))
		})
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkNote measures what a note adds to a commit of 1,000 rows, on a server that syncs.
func BenchmarkNote(b *testing.B) {
	const size = 1000
	g := on(b, testserver.PostgreSQL(b))
	g.config.Columns, g.config.Create = emails(), true
	s := g.sink("p")
	defer s.Close()
	out := emailRows(s.columns, size, 0)
	sqltest.BenchmarkNote(b, s, func(first uint64) *event.Output {
		o := out.Output(first)
		o.Range.Fingerprints = make([]uint32, size)
		return o
	})
}
