package publishing

import (
	"slices"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// Apply records in next what the committer reports of an order. The files of next may have
// changed since. It reports whether the store must begin a new incarnation.
func Apply(next *manifest.Manifest, order *lake.Order, report *lake.Report, now time.Time) (rolledBack bool) {
	for i := range order.Tables {
		o := &order.Tables[i]
		r := lake.TableReport{Error: "the committer reported nothing of the table"}
		if i < len(report.Tables) {
			r = report.Tables[i]
		}
		for _, t := range next.Tables {
			if t.Lake != nil && settingsOf(t) == o.Settings {
				applyTable(next, t, o, &r, now)
			}
		}
		rolledBack = rolledBack || r.RolledBack
	}
	return rolledBack
}

func applyTable(m *manifest.Manifest, t *manifest.Table, o *lake.TableOrder, r *lake.TableReport, now time.Time) {
	known := *t.Lake
	known.Error, known.Hint = r.Error, r.Hint
	if r.Error == "" {
		known.UUID, known.Foreign = r.UUID, r.Foreign
		covers := r.Covered == o.Step && o.Step > known.Step
		known.Columns = slices.Clone(known.Columns)
		if w := known.Widening; covers && w != nil && w.Step > 0 && o.Step >= w.Step {
			known.Columns, known.Widening = known.Ordering(), nil
		}
		for i := range known.Columns {
			for _, c := range r.Columns {
				if c.ID == known.Columns[i].ID && (c.Former == 0 || covers) {
					known.Columns[i].Lake = c.Lake
				}
			}
		}
		if covers {
			known.Step, known.Committed = o.Step, now.UTC()
			var all []wanted
			for _, f := range o.Files {
				all = append(all, wanted{File: f})
			}
			known.Files = checksum(all, known.Columns)
		}
	}
	t.Lake = &known
	for i, f := range t.Files {
		names := []string{}
		if f.Step > 0 {
			names = append(names, nameOf(m, f))
		}
		for _, replaced := range f.Replaces {
			names = append(names, replaced.Name)
		}
		changed := *f
		has := func(list []string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
		}
		if has(r.Gone) {
			changed.Gone = true
		}
		if has(r.Lost) { // publish the rows again, from this file
			changed.Replaces, changed.Changed = nil, false
		}
		if f.Gone != changed.Gone || len(f.Replaces) != len(changed.Replaces) {
			t.Files[i] = &changed
		}
	}
}
