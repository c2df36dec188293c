package trial_test

import (
	"fmt"
	"testing"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
)

const benchCode = `function main(event) event.domain = event.email:match "@(.+)$" return event end`

// BenchmarkRun runs batches of 1,000 events through a pipeline with a sink of documents, and through
// its script alone, which is the least that it can cost.
func BenchmarkRun(b *testing.B) {
	in := event.Batch{Partition: "p", Range: event.Range{Count: 1000}}
	for i := range 1000 {
		in.Append(fmt.Appendf(nil, `{"id":%d,"email":"user%d@example.com","name":"user %d","age":42}`, i, i, i))
	}
	c := &config.Config{Data: b.TempDir(), Pipelines: []config.Pipeline{{
		Name: "p", Source: config.Source{Kind: "generate", Settings: map[string]any{"events": 1}}, Sinks: []config.Sink{{Kind: "stdout"}},
		Script: &config.Script{Text: benchCode},
	}}}
	p, err := trial.Load(b.Context(), c, "", options(), trial.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	perEvent := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(in.Len()), "ns/event")
	}
	b.Run("trial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err := p.Run(b.Context(), &in, func(_ *event.Batch, res *event.Result) error {
				if res.Outputs[0].Len() != in.Len() {
					return fmt.Errorf("%d rows", res.Outputs[0].Len())
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		perEvent(b)
	})
	b.Run("script", func(b *testing.B) {
		s, err := lua.Language().Load(b.Context(), script.Code{Name: "bench.lua", Text: []byte(benchCode)}, script.Options{Sinks: []script.Sink{{}}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		res := event.Result{Outputs: make([]event.Output, 1)}
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Run(b.Context(), &in, &res); err != nil {
				b.Fatal(err)
			}
		}
		perEvent(b)
	})
}
