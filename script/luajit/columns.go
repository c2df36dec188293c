//go:build cgo

package luajit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document"
	"github.com/perigeedb/perigee/internal/luajit"
	"github.com/perigeedb/perigee/script"
)

// columns fills the columns of the sinks that ask for them. When the whole batch
// ran in one crossing they have been extracted there. A row that does not fit
// for one sink is left out for all, so that running it again doubles nothing.
func (r *run) columns(e *luajit.Engine, whole bool) error {
	var misfits map[int]document.Bad
	for i := range r.res.Outputs {
		if r.s.opts.Sinks[i].Columns == nil {
			continue
		}
		report, err := extract(e.Extractor(i), &r.res.Outputs[i], whole)
		if err != nil {
			return err
		}
		for _, bad := range report.Bad {
			if misfits == nil {
				misfits = make(map[int]document.Bad)
			}
			if _, found := misfits[bad.Row]; !found {
				misfits[bad.Row] = bad
			}
		}
	}
	if misfits != nil {
		r.leaveOut(misfits)
	}
	return nil
}

func extract(x *document.Extractor, out *event.Output, whole bool) (document.Report, error) {
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

// leaveOut makes dead letters of rows and removes them from all outputs.
func (r *run) leaveOut(misfits map[int]document.Bad) {
	rows := slices.Sorted(maps.Keys(misfits))
	for _, row := range rows {
		from := r.res.Outputs[0].From
		first := row
		for first > 0 && from[first-1] == from[row] {
			first--
		}
		r.bury(int(from[row]), uint32(row-first), "column", misfits[row].Reason, "")
	}
	for i := range r.res.Outputs {
		r.res.Outputs[i].Remove(rows)
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
