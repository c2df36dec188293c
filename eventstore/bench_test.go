//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// tenColumns returns documents of ten fields, about 300 bytes each.
func tenColumns(first uint64, n int) *event.Output {
	docs := make([]string, n)
	for i := range docs {
		id := first + uint64(i)
		docs[i] = fmt.Sprintf(`{"id":%d,"time":%d,"event":"%s","email":"user%d@example.com","campaign":%d,"ip":"10.%d.%d.%d",`+
			`"agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36","url":"https://example.com/landing/%d?utm_source=mail","score":%d.25,"meta":{"list":%d,"tags":["a","b"]}}`,
			id, 1767323000+id/100, [...]string{"sent", "open", "click", "bounce"}[id%4], id%100_000, id%50,
			id>>16&255, id>>8&255, id&255, id%1000, id%97, id%10)
	}
	return outputOf(first, docs...)
}

// BenchmarkStorage measures the log alone; the columns are already extracted.
func BenchmarkStorage(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openStore(b, b.TempDir())
			p := take(b, openTable(b, s, TableConfig{Time: "time"}))
			out, buffer := tenColumns(0, size), &buffer{}
			if err := buffer.extract(p.table, out); err != nil {
				b.Fatal(err)
			}
			if err := p.table.installSchema(context.Background(), buffer.schema); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(out.Data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.appendExtracted(context.Background(), out, buffer); err != nil {
					b.Fatal(err)
				}
				out.Range.First += out.Range.Count
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkAppend measures the whole path from JSON, with several lanes.
func BenchmarkAppend(b *testing.B) {
	const size = 10_000
	for _, lanes := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			s := openStore(b, b.TempDir())
			p := take(b, openTable(b, s, TableConfig{Time: "time"}))
			work := make(chan uint64)
			var group sync.WaitGroup
			for range lanes {
				out := tenColumns(0, size)
				group.Go(func() {
					for first := range work {
						out.Range.First = first
						if err := p.Append(context.Background(), out); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				work <- uint64(i) * size
			}
			close(work)
			group.Wait()
			b.ReportMetric(size*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
