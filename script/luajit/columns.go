//go:build cgo

package luajit

import (
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/luajit"
)

// columns fills the columns of the sinks that ask for them. When the whole batch
// ran in one crossing they have been extracted there.
func (r *run) columns(e *luajit.Engine, whole bool) error {
	misfits := map[int]document.Bad{}
	for i := range r.res.Outputs {
		if r.s.opts.Sinks[i] == nil {
			continue
		}
		report, err := r.extract(e.Extractor(i), &r.res.Outputs[i], whole)
		if err != nil {
			return err
		}
		for _, bad := range report.Bad {
			if _, found := misfits[bad.Row]; !found {
				misfits[bad.Row] = bad
			}
		}
	}
	if len(misfits) == 0 {
		return nil
	}
	r.buryRows(misfits)
	for i := range r.res.Outputs {
		r.drop(&r.res.Outputs[i], misfits)
	}
	return r.columns(e, false)
}

func (r *run) extract(x *document.Extractor, out *event.Output, whole bool) (document.Report, error) {
	if out.Columns == nil {
		out.Columns = &event.Columns{}
	}
	if whole {
		return x.Collect(out.Data, out.Columns), nil
	}
	report, err := x.Extract(out.Data, out.Ends, out.Columns)
	if err != nil {
		err = fmt.Errorf("extract columns: %w", err)
	}
	return report, err
}

// buryRows makes dead letters of outputs that do not fit a sink's columns.
func (r *run) buryRows(misfits map[int]document.Bad) {
	out := &r.res.Outputs[0]
	number := uint32(0)
	for row, from := range out.From {
		if row > 0 && out.From[row-1] == from {
			number++
		} else {
			number = 0
		}
		if bad, found := misfits[row]; found {
			r.bury(int(from), number, "column", bad.Reason, "")
		}
	}
}

// drop leaves the misfits out of an output.
func (r *run) drop(out *event.Output, misfits map[int]document.Bad) {
	kept, data := 0, out.Data[:0]
	for row := range out.Len() {
		doc, from := out.Doc(row), out.From[row]
		if _, found := misfits[row]; found {
			continue
		}
		data = append(data, doc...)
		out.Ends[kept], out.From[kept] = uint32(len(data)), from
		kept++
	}
	out.Data, out.Ends, out.From = data, out.Ends[:kept], out.From[:kept]
}
