//go:build cgo && luajit

package luajit

import (
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/document/report"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// finish completes the result. When whole, the batch ran in one crossing and nothing was
// routed: then the columns have been extracted there.
func (r *run) finish(e *engine, whole bool) error {
	return r.result.FinishColumns(r.ran, func(sink int) script.Extractor {
		switch {
		case r.s.columnsOnly:
			return (*gathered)(r)
		case whole && !r.s.opts.Sinks[sink].Routed:
			return collected{e.Extractor(sink)}
		}
		return e.Extractor(sink)
	})
}

// gatherColumns adds what a crossing has extracted to the columns of an output that has only columns. The
// documents that it would take to do that later are not all there.
func (r *run) gatherColumns(e *engine, out *luajit.Outcome) {
	rows := &r.res.Outputs[0]
	if rows.Columns == nil {
		rows.Columns = new(event.Columns)
	}
	r.bad = append(r.bad, e.Extractor(0).Collect(out.Data, rows.Columns)...)
}

// gathered is a run whose columns gather has filled.
type gathered run

// Extract implements script.Extractor.
func (r *gathered) Extract([]byte, []uint32, *event.Columns) (report.Report, error) {
	return report.Report{Rejected: r.bad}, nil
}

// collected is an extractor that has run within a crossing.
type collected struct{ *document.Extractor }

// Extract implements script.Extractor.
func (x collected) Extract(data []byte, _ []uint32, columns *event.Columns) (report.Report, error) {
	return report.Report{Rejected: x.Collect(data, columns)}, nil
}

// sinks are those of the options as the engine takes them.
func sinks(all []script.Sink) []luajit.Sink {
	native := make([]luajit.Sink, len(all))
	for i, sink := range all {
		native[i] = luajit.Sink(sink)
	}
	return native
}
