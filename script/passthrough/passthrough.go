// Package passthrough is the script of a pipeline that has none: every event that is a
// JSON object goes on byte for byte, to every sink that is not Routed and with the columns
// that it asks for; the others are dead letters. It is safe for concurrent use.
package passthrough

import (
	"context"
	"errors"
	"sync"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
)

// Language offers passing through as a language without code.
func Language() script.Language {
	return script.Language{
		Name: "none",
		Doc:  "no script: events go on as they came",
		Load: func(_ context.Context, _ script.Code, opts script.Options) (script.Script, error) {
			p := &passthrough{opts: opts}
			p.builders.New = p.newBuilder
			return p, nil
		},
	}
}

type passthrough struct {
	opts     script.Options
	builders sync.Pool // of *builder
}

type builder struct {
	*script.ResultBuilder
	from []uint32 // 0, 1, 2, …
}

func (p *passthrough) newBuilder() any {
	b := &builder{ResultBuilder: script.NewResultBuilder(&p.opts, p)}
	b.Invalid = func(reason string) (string, error) { return "parse", errors.New(reason) }
	return b
}

func (p *passthrough) String() string { return "no script" }

// Close implements script.Script.
func (p *passthrough) Close() error { return nil }

// Run implements script.Script. It leaves to the builder which documents are objects.
func (p *passthrough) Run(_ context.Context, in *event.Batch, res *event.Result) error {
	b := p.builders.Get().(*builder)
	defer p.builders.Put(b)
	for i := len(b.from); i < in.Len(); i++ {
		b.from = append(b.from, uint32(i))
	}
	b.Start(in, res)
	b.AddRows(&event.Output{Data: in.Data, Ends: in.Ends, From: b.from[:in.Len()]})
	return b.Finish(in.Len())
}
