//go:build cgo && (linux || darwin || freebsd)

package goplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// trimPath builds the plugin of the examples.
func trimPath(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "trim.so")
	if err := Build(context.Background(), "../../examples/plugin", path); err != nil {
		b.Fatal(err)
	}
	return path
}

// row19 is a row of 19 fields, as TalariaDB ingests them.
func row19() map[string]any {
	row := map[string]any{
		"event": "booking.created", "time": int64(1684202583), "city": "Singapore", "amount": 12.25, "qty": int64(3),
		"currency": "SGD", "country": "SG", "driver": "d-00017", "passenger": "p-00042", "vehicle": "car", "state": "open",
		"paid": false, "lat": 1.3521, "lon": 103.8198,
	}
	for i := range 5 {
		row[fmt.Sprintf("key%d", i+1)] = fmt.Sprintf("val%d", i+1)
	}
	return row
}

// BenchmarkRun passes batches of 1000 events through the plugin, by shape.
func BenchmarkRun(b *testing.B) {
	path := trimPath(b)
	in := &event.Batch{}
	doc, err := json.Marshal(row19())
	if err != nil {
		b.Fatal(err)
	}
	for range 1000 {
		in.Append(doc)
	}
	for _, symbol := range []string{"Main", "Batch"} {
		b.Run(symbol, func(b *testing.B) {
			s, err := Language().Load(context.Background(), script.Code{Name: path, Func: symbol}, script.Options{Sinks: []script.Sink{{}}})
			if err != nil {
				b.Fatal(err)
			}
			res := &event.Result{Outputs: make([]event.Output, 1)}
			for b.Loop() {
				if err := s.Run(context.Background(), in, res); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*in.Len()), "ns/event")
		})
	}
}
