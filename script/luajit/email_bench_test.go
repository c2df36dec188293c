//go:build cgo && luajit

package luajit_test

import (
	"context"
	"os"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luajit"
	"github.com/perigeedb/perigee/source/generate"
)

// emailColumns are those of examples/email/redis-mysql.yaml.
func emailColumns() []event.Column {
	var columns []event.Column
	for _, c := range []struct {
		name string
		kind event.Type
	}{
		{"id", event.Int64}, {"event_name", event.String}, {"email", event.String}, {"domain", event.String},
		{"class", event.String}, {"topic", event.String}, {"campaign_number", event.Int32}, {"time", event.Timestamp},
		{"ip", event.String}, {"device", event.String}, {"retried", event.Bool}, {"url", event.String},
	} {
		columns = append(columns, event.Column{Name: c.name, Path: []string{c.name}, Type: c.kind})
	}
	return columns
}

// BenchmarkEmail reports the time of one generated event in the example script,
// with and without the columns of its table, in batches of a thousand.
func BenchmarkEmail(b *testing.B) {
	text, err := os.ReadFile("../../examples/email/email.lua")
	if err != nil {
		b.Fatal(err)
	}
	for _, lang := range []script.Language{luajit.Language, luajit.Interpreted} {
		b.Run(lang.Name+"/columns", func(b *testing.B) { email(b, lang, string(text), emailColumns()) })
		b.Run(lang.Name+"/documents", func(b *testing.B) { email(b, lang, string(text), nil) })
		b.Run(lang.Name+"/pass", func(b *testing.B) { email(b, lang, passThrough, nil) })
	}
}

func email(b *testing.B, lang script.Language, text string, columns []event.Column) {
	s, err := lang.Load(b.Context(), script.Code{Name: "email.lua", Text: []byte(text)}, script.Options{Sinks: []script.Sink{{Columns: columns, ColumnsOnly: columns != nil}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	const size = 1000
	batches, res := make([]event.Batch, 16), &event.Result{Outputs: make([]event.Output, 1)}
	for i := range batches {
		in := &batches[i]
		for n := range uint64(size) {
			in.Append(generate.Append(nil, 1, uint64(i)*size+n))
		}
		in.Range = event.Range{First: uint64(i) * size, Count: size}
	}
	run := func(i int) {
		if err := s.Run(context.Background(), &batches[i%len(batches)], res); err != nil {
			b.Fatal(err)
		}
	}
	for i := range batches {
		run(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		run(i)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/event")
}
