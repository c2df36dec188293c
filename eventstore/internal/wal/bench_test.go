package wal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
)

// tenColumns returns an entry of ten columns, about 120 bytes per row.
func tenColumns(rows int) *Entry {
	types := []event.Type{
		event.Timestamp, event.String, event.Int64, event.Int64, event.Float64,
		event.String, event.String, event.Bool, event.Int32, event.JSON,
	}
	e := &Entry{Kind: Rows, Table: 1, Schema: 1, Pipeline: "bench", Partition: "0", Range: event.Range{Count: uint64(rows)}}
	e.Columns = &event.Columns{Rows: rows, Vectors: make([]event.Vector, len(types))}
	for c, of := range types {
		e.IDs = append(e.IDs, int32(c+2))
		e.Columns.Spec = append(e.Columns.Spec, event.Column{Type: of})
		v := &e.Columns.Vectors[c]
		for row := range rows {
			switch layoutOf(of) {
			case integers:
				v.Ints = append(v.Ints, int64(row*(c+1)))
			case floats:
				v.Floats = append(v.Floats, float64(row)/3)
			default:
				v.Bytes = fmt.Appendf(v.Bytes, "value %d", row%1000)
				v.Ends = append(v.Ends, uint32(len(v.Bytes)))
			}
		}
	}
	return e
}

// BenchmarkAppend appends from one goroutine and reports the longest append.
func BenchmarkAppend(b *testing.B) {
	for _, rows := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint("rows=", rows), func(b *testing.B) {
			l := open(b, b.TempDir(), Options{})
			e := tenColumns(rows)
			var buffer []byte
			var longest time.Duration
			first := uint64(1)
			b.ReportAllocs()
			for b.Loop() {
				begun := time.Now()
				buffer = AppendEntry(buffer[:0], e)
				p, err := l.Append(b.Context(), buffer)
				if err != nil {
					b.Fatal(err)
				}
				longest = max(longest, time.Since(begun))
				if p.File > first+2 {
					first = p.File - 1
					if err := l.RemoveBefore(first); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.SetBytes(int64(len(buffer)))
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

// BenchmarkRaw writes and syncs the same bytes in a bare loop.
func BenchmarkRaw(b *testing.B) {
	for _, rows := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint("rows=", rows), func(b *testing.B) {
			content := AppendEntry(nil, tenColumns(rows))
			f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			for b.Loop() {
				if _, err := f.Write(content); err != nil {
					b.Fatal(err)
				}
				if err := syncData(f); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(content)))
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkEncode encodes entries without a disk.
func BenchmarkEncode(b *testing.B) {
	e := tenColumns(10_000)
	var buffer []byte
	for b.Loop() {
		buffer = AppendEntry(buffer[:0], e)
	}
	b.SetBytes(int64(len(buffer)))
}

// BenchmarkOpen opens a log with five full files.
func BenchmarkOpen(b *testing.B) {
	folder := b.TempDir()
	l := open(b, folder, Options{})
	frames := AppendEntry(nil, tenColumns(10_000))
	for l.End().File < 6 {
		if _, err := l.Append(b.Context(), frames); err != nil {
			b.Fatal(err)
		}
	}
	_ = l.Close()
	for b.Loop() {
		l := open(b, folder, Options{})
		_ = l.Close()
	}
}
