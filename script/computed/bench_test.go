package computed

import (
	"fmt"
	"testing"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
	"github.com/perigeedb/perigee/script/passthrough"
)

func BenchmarkColumns(b *testing.B) {
	doc := `{"a":1`
	for i := range 16 {
		doc += fmt.Sprintf(`,"field%d":"value %d"`, i, i)
	}
	doc += "}"
	in := &event.Batch{Partition: "p", Range: event.Range{Count: 1000}}
	for range 1000 {
		in.Append([]byte(doc))
	}
	for n := range 4 {
		b.Run(fmt.Sprint(n, " columns"), func(b *testing.B) {
			inner, err := passthrough.Language().Load(b.Context(), script.Code{}, script.Options{Sinks: []script.Sink{{}}, SingleOutput: true})
			if err != nil {
				b.Fatal(err)
			}
			var columns []Column
			for i := range n {
				loaded, err := lua.Language().Load(b.Context(), script.Code{Name: "c", Text: []byte("function main(row) return row.a * 2 end")}, script.Options{Sinks: []script.Sink{{}}, ReturnsValue: true})
				if err != nil {
					b.Fatal(err)
				}
				columns = append(columns, Column{Name: fmt.Sprint("c", i), Type: event.Int64, Code: loaded})
			}
			s := New("p", inner, columns, []script.Sink{{}}, time.Now)
			defer s.Close()
			res := &event.Result{Outputs: make([]event.Output, 1)}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Run(b.Context(), in, res); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/event")
		})
	}
}
