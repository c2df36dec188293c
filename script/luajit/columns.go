//go:build cgo

package luajit

import (
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// columns fills the columns of the sinks that ask for them. When whole, the batch
// ran in one crossing and nothing was routed: then they have been extracted there.
func (r *run) columns(e *engine, whole bool) error {
	if r.s.bare {
		return r.fit(0, gathered(r.bad))
	}
	for i := range r.res.Outputs {
		sink := &r.s.opts.Sinks[i]
		if sink.Columns == nil || r.s.opts.Together {
			continue
		}
		extract := e.Extractor(i).Extract
		if whole && !sink.Routed {
			extract = collect(e.Extractor(i))
		}
		if err := r.fit(i, extract); err != nil {
			return err
		}
	}
	return nil
}

// fit fills the columns of sink i.
func (r *run) fit(i int, extract report.Extract) error {
	name := r.s.opts.Sinks[i].Name
	err := report.Fit(extract, &r.res.Outputs[i], func(event int, number uint32, bad report.Bad) {
		r.bury(event, name, number, "column", bad.Reason, "")
	})
	if err != nil {
		return fmt.Errorf("extract columns: %w", err)
	}
	return nil
}

// gather adds what a crossing has extracted to the columns of a bare output. The
// documents that it would take to do that later are not all there.
func (r *run) gather(e *engine, out *luajit.Outcome) {
	bare := &r.res.Outputs[0]
	if bare.Columns == nil {
		bare.Columns = new(event.Columns)
	}
	add := e.Extractor(0).Append
	if bare.Columns.Rows == 0 {
		add = e.Extractor(0).Collect
	}
	r.bad = append(r.bad, add(out.Data, bare.Columns).Bad...)
}

// gathered hands over what gather found.
func gathered(bad []report.Bad) report.Extract {
	return func([]byte, []uint32, *event.Columns) (report.Report, error) { return report.Report{Bad: bad}, nil }
}

// collect fetches what has been extracted.
func collect(x *document.Extractor) report.Extract {
	return func(data []byte, _ []uint32, columns *event.Columns) (report.Report, error) {
		return x.Collect(data, columns), nil
	}
}

// sinks are those of the options as the engine takes them.
func sinks(all []script.Sink) []luajit.Sink {
	native := make([]luajit.Sink, len(all))
	for i, sink := range all {
		native[i] = luajit.Sink(sink)
	}
	return native
}
