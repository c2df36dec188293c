// Package passthrough is the script of a pipeline that has none: every event
// that is a JSON object goes on byte for byte, with the columns that the sink
// asks for; the others are dead letters. It is safe for concurrent use.
package passthrough

import (
	"bytes"
	"cmp"
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
			return &passing{sinks: opts.Sinks}, nil
		},
	}
}

type passing struct {
	sinks      []script.Sink
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
		pass(in, &res.Outputs[i])
		err := report.Fit(x.Extract, &res.Outputs[i], func(event int, number uint32, bad report.Bad) {
			if i == 0 || bad.Column >= 0 { // what is no object is none for every sink
				res.Dead = append(res.Dead, p.dead(in, event, number, bad))
			}
		})
		if err != nil {
			return err
		}
	}
	slices.SortStableFunc(res.Dead, func(a, b event.Dead) int { return cmp.Compare(a.Position, b.Position) })
	return nil
}

// pass copies the batch.
func pass(in *event.Batch, out *event.Output) {
	out.Reset()
	out.Partition, out.Range = in.Partition, in.Range
	out.Data, out.Ends = append(out.Data, in.Data...), append(out.Ends, in.Ends...)
	for i := range in.Len() {
		out.From = append(out.From, uint32(i))
	}
}

func (p *passing) dead(in *event.Batch, i int, number uint32, bad report.Bad) event.Dead {
	stage := "column"
	if bad.Column < 0 {
		stage = "parse"
	}
	return event.Dead{
		Position: in.Range.First + uint64(i), Number: number, Stage: stage, Error: bad.Reason,
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
