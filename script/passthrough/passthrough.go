// Package passthrough is the script of a pipeline that has none: every event
// that is a JSON object goes on byte for byte, to every sink that is not Routed and
// with the columns that it asks for; the others are dead letters. It is safe for
// concurrent use.
package passthrough

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/script"
)

// Language offers passing through as a language without code.
func Language() script.Language {
	return script.Language{
		Name: "none",
		Doc:  "no script: events go on as they came",
		Load: func(_ context.Context, _ script.Code, opts script.Options) (script.Script, error) {
			sinks := opts.Sinks
			if opts.Together {
				sinks = []script.Sink{{}}
			}
			first := slices.IndexFunc(sinks, func(s script.Sink) bool { return !s.Routed })
			return &passing{sinks: sinks, first: first}, nil
		},
	}
}

type passing struct {
	sinks      []script.Sink
	first      int       // sink that gets events
	extractors sync.Pool // of *[]*document.Extractor, by sink
}

func (p *passing) String() string { return "no script" }

func (p *passing) Close() error { return nil }

// Run implements script.Script. The extractor that fills columns also says which
// documents are no objects, so it is asked where no columns are wanted too.
func (p *passing) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	res.Dead, res.Dropped, res.Ran = res.Dead[:0], 0, in.Len()
	extractors := p.acquire()
	defer p.extractors.Put(extractors)
	for i, x := range *extractors {
		out := &res.Outputs[i]
		out.Reset()
		out.Partition, out.Range = in.Partition, in.Range
		if !p.sinks[i].Routed {
			pass(in, out)
		}
		err := report.Fit(x.Extract, out, func(event int, _ uint32, bad report.Bad) {
			switch {
			case bad.Column >= 0:
				res.Dead = append(res.Dead, p.dead(in, event, "column", p.sinks[i].Name, bad))
			case i == p.first: // what is no object is none for every sink
				res.Dead = append(res.Dead, p.dead(in, event, "parse", "", bad))
			}
		})
		if err != nil {
			return err
		}
	}
	script.Sort(res.Dead)
	return nil
}

// pass copies the batch.
func pass(in *event.Batch, out *event.Output) {
	out.Data, out.Ends = append(out.Data, in.Data...), append(out.Ends, in.Ends...)
	for i := range in.Len() {
		out.From = append(out.From, uint32(i))
	}
}

func (p *passing) dead(in *event.Batch, i int, stage, sink string, bad report.Bad) event.Dead {
	return event.Dead{
		Position: in.Range.First + uint64(i), Sink: sink, Stage: stage, Error: bad.Reason,
		Script: p.String(), Original: bytes.Clone(in.Doc(i)),
	}
}

func (p *passing) acquire() *[]*document.Extractor {
	if ready, ok := p.extractors.Get().(*[]*document.Extractor); ok {
		return ready
	}
	extractors := make([]*document.Extractor, len(p.sinks))
	for i, sink := range p.sinks {
		extractors[i] = document.NewExtractor(sink.Columns)
	}
	return &extractors
}
