//go:build cgo && (linux || darwin || freebsd)

package goplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// filterKeys is Data of the example, without a plugin.
func filterKeys(row map[string]any) (any, error) {
	for _, key := range []string{"key1", "key2", "key3", "key4", "key5"} {
		delete(row, key)
	}
	return json.Marshal(row)
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

// BenchmarkKeyFilter compares a plugin behind a Handler with the same function
// called directly, both on a fresh copy of the row. They take turns, and
// the median turn counts, because machines are busy at times;
// plugin_vs_direct_call is direct's time over the plugin's.
func BenchmarkKeyFilter(b *testing.B) {
	handler, err := Handler("Data").Load(trimPath(b))
	if err != nil {
		b.Fatal(err)
	}
	row := row19()
	var direct, called []float64
	for b.Loop() {
		direct = append(direct, timed(b, func() (any, error) { return filterKeys(cloneRow(row)) }))
		called = append(called, timed(b, func() (any, error) { return handler.Value(row) }))
	}
	slices.Sort(direct)
	slices.Sort(called)
	b.ReportMetric(direct[b.N/2], "ns/direct")
	b.ReportMetric(called[b.N/2], "ns/plugin")
	b.ReportMetric(direct[b.N/2]/called[b.N/2], "plugin_vs_direct_call")
}

// turn is how many calls are timed at once.
const turn = 100

func timed(b *testing.B, call func() (any, error)) float64 {
	start := time.Now()
	for range turn {
		if _, err := call(); err != nil {
			b.Fatal(err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / turn
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
			s, err := Language().Load(context.Background(), script.Code{Name: path, Func: symbol}, script.Options{Sinks: [][]event.Column{nil}})
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
