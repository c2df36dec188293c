package mysql

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/testserver"
	"github.com/perigeedb/perigee/sink/internal/sqlsink"
	"github.com/perigeedb/perigee/sink/internal/sqlsink/sqltest"
)

// emails are the columns of an ordinary table of events.
func emails() []Column {
	return []Column{
		{Name: "id", Type: Type(event.Int64), Required: true},
		{Name: "event", Type: Type(event.String), SQL: "VARCHAR(16)"},
		{Name: "email", Type: Type(event.String), SQL: "VARCHAR(100)"},
		{Name: "campaign", Type: Type(event.Int32)},
		{Name: "time", Type: Type(event.Timestamp)},
		{Name: "ip", Type: Type(event.String), SQL: "VARCHAR(45)"},
		{Name: "agent", Type: Type(event.String), SQL: "VARCHAR(200)"},
		{Name: "meta", Type: Type(event.JSON)},
	}
}

func emailRows(spec []event.Column, rows int) *event.Output {
	columns := &event.Columns{Spec: spec, Rows: rows, Vectors: make([]event.Vector, len(spec))}
	out := &event.Output{Partition: "a", Columns: columns}
	text := func(v *event.Vector, s string) {
		v.Bytes = append(v.Bytes, s...)
		v.Ends = append(v.Ends, uint32(len(v.Bytes)))
	}
	v := columns.Vectors
	for i := range rows {
		for c := range v {
			v[c].Null = append(v[c].Null, 0)
		}
		v[0].Ints = append(v[0].Ints, int64(i))
		text(&v[1], "click")
		text(&v[2], fmt.Sprintf("user.%d@mail.example.com", i))
		v[3].Ints = append(v[3].Ints, int64(i%50))
		v[4].Ints = append(v[4].Ints, 1_700_000_000_000_000+int64(i)*977_000)
		text(&v[5], fmt.Sprintf("10.0.%d.%d", i>>8&255, i&255))
		text(&v[6], "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0")
		text(&v[7], `{"batch":17,"tags":["a","b"],"subject":"Don't miss it"}`)
		out.Ends = append(out.Ends, 0)
		out.From = append(out.From, uint32(i))
	}
	return out
}

// BenchmarkWrite measures the sink's own processor time, without the server's.
func BenchmarkWrite(b *testing.B) {
	for _, method := range []Method{Rows, Bulk} {
		for _, lanes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/lanes=%d", method, lanes), func(b *testing.B) { benchmarkWrite(b, method, lanes) })
		}
	}
}

func benchmarkWrite(b *testing.B, method Method, lanes int) {
	const rows = 1000
	server := shared.Server(b)
	config := Config{Address: server.Address(), User: "root", Database: server.Database(b), Table: "events", Create: true, Columns: emails(), Method: method}
	s, err := New(env("p"), config)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w, _, err := s.Open(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	var next atomic.Uint64
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime()
	for range lanes {
		group.Go(func() {
			out := emailRows(s.columns, rows)
			out.Range = event.Range{Count: rows, Fingerprints: make([]uint32, rows)}
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				out.Range.First = n * rows
				if err := w.Write(b.Context(), out); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64((processorTime()-before).Nanoseconds())/float64(b.N)/rows, "own-ns/row")
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkEncode measures what comes before a batch is sent.
func BenchmarkEncode(b *testing.B) {
	const rows = 1000
	s, err := New(env("p"), Config{User: "root", Database: "d", Table: "events", Columns: emails()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := &partition{sink: s, plan: plan{packet: 16 << 20, scales: make([]int, 8), head: "INSERT INTO events VALUES ", kinds: s.parameterKinds(asCreated(s.columns))}}
	t := &batch{columns: emailRows(s.columns, rows).Columns, formats: newFormats(s.columns, &w.plan)}
	for row := range rows {
		t.rows = append(t.rows, row)
	}
	ways := map[string]func() error{
		"text":       func() error { _, err := w.gather(t, t.rows, 16<<20, &t.formats.literal, "(", "),"); return err },
		"bulk":       func() error { _, err := w.gather(t, t.rows, 16<<20, &t.formats.bulk, "", ""); return err },
		"parameters": func() error { _, err := w.gather(t, t.rows, 16<<20, &t.formats.values, "", ""); return err },
	}
	for name, encode := range ways {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t.buf = t.buf[:0]
				if err := encode(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}

// asCreated are the columns of a table that the sink created.
func asCreated(columns []event.Column) (all []sqlsink.TableColumn) {
	for _, c := range columns {
		all = append(all, sqlsink.TableColumn{Name: c.Name, Type: strings.ToLower(sqlType(Column{Type: Type(c.Type)}))})
	}
	return all
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
	const rows = 1000
	server := testserver.MariaDB(b)
	config := Config{Address: server.Address(), User: "root", Database: server.Database(b), Table: "events", Create: true, Columns: emails()}
	s, err := New(env("p"), config)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	out := emailRows(s.columns, rows)
	sqltest.BenchmarkNote(b, s, func(first uint64) *event.Output {
		out.Range = event.Range{First: first, Count: rows, Fingerprints: make([]uint32, rows)}
		return out
	})
}
