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
		r := lake.TableReport{Error: "the committer's report omits the table"}
		if i < len(report.Tables) {
			r = report.Tables[i]
		}
		for _, t := range next.Tables {
			if IsOf(t, o) {
				applyTable(next, t, o, &r, now)
			}
		}
		rolledBack = rolledBack || r.RolledBack
	}
	return rolledBack
}

// KeepOthers removes from the report of a look the changes that a concurrent order of this store may
// have caused. It keeps only files whose data, according to the later manifest m, are only in the
// lake, because no order removes those.
func KeepOthers(m *manifest.Manifest, o *lake.TableOrder, r *lake.TableReport) {
	wanted := map[string]bool{}
	for _, t := range m.Tables {
		for _, f := range t.Files {
			if IsOf(t, o) && f.Remote != nil && f.Step > 0 {
				wanted[nameOf(m, f)] = true
			}
		}
	}
	r.Gone = slices.DeleteFunc(r.Gone, func(name string) bool { return !wanted[name] })
	r.Lost = nil
}

// setOf returns names as a set: there may be as many as files.
func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// IsOf reports whether an order is of a table.
func IsOf(t *manifest.Table, o *lake.TableOrder) bool {
	return t.Lake != nil && settingsOf(t) == o.Settings
}

func applyTable(m *manifest.Manifest, t *manifest.Table, o *lake.TableOrder, r *lake.TableReport, now time.Time) {
	if len(r.Widened) > 0 && !o.Look {
		rebuild(t, r.Widened)
	}
	known := *t.Lake
	if r.Location != "" {
		known.Location, known.Deletes = r.Location, r.Deletes
	}
	if !o.Look {
		known.Error, known.Hint = r.Error, r.Hint
	}
	if r.Error == "" && !o.Look {
		known.UUID, known.Metadata, known.Foreign = r.UUID, r.Metadata, r.Foreign
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
			known.Step, known.Committed, known.Rebuilding = o.Step, now.UTC(), false
			known.Files = checksum(o.Files, known.Columns)
		}
	}
	if r.Tidied != nil {
		known.Purges = purgesAfter(known.Purges, o.Tidy, r.Tidied)
	}
	t.Lake = &known
	gone, lost := setOf(r.Gone), setOf(r.Lost)
	for i, f := range t.Files {
		names := []string{}
		if f.Step > 0 {
			names = append(names, nameOf(m, f))
		}
		for _, replaced := range f.Replaces {
			names = append(names, replaced.Name)
		}
		changed := *f
		has := func(set map[string]bool) bool {
			return slices.ContainsFunc(names, func(name string) bool { return set[name] })
		}
		if has(gone) {
			changed.Gone = true
		}
		if has(lost) { // publish the rows again, from this file
			changed.Replaces, changed.Changed = nil, false
			if f.Step == 0 {
				changed.Replaces, changed.Changed = remainingReplaced(f.Replaces, r.Lost)
			}
			if f.Remote != nil {
				changed.Step = 0
			}
		}
		if f.Gone != changed.Gone || f.Step != changed.Step || has(lost) {
			t.Files[i] = &changed
		}
	}
}

// remainingReplaced returns the files that a file still replaces after the lake lost some of them,
// and whether the rows changed. Files that a lost file was to replace are still there.
func remainingReplaced(replaced []manifest.LakeFile, lost []string) (left []manifest.LakeFile, changed bool) {
	for _, r := range replaced {
		if !slices.Contains(lost, r.Name) {
			left = append(left, r)
			continue
		}
		before, _ := remainingReplaced(r.Replaces, lost)
		left = append(left, before...)
	}
	return left, len(left) > 0
}

// purgesAfter returns the purges that still wait after a report.
func purgesAfter(purges []manifest.LakePurge, ordered *lake.Tidy, r *lake.Tidied) (left []manifest.LakePurge) {
	for _, p := range purges {
		at := slices.IndexFunc(ordered.Purges, func(o lake.Purge) bool { return o.Number == p.Segment && o.At.Equal(p.At) })
		switch {
		case at < 0: // it began after the order
		case r.Error != "":
			p.Waits = r.Error
		case at < len(r.Purged) && r.Purged[at].Waits == "":
			continue
		case at < len(r.Purged):
			p.Waits = r.Purged[at].Waits
			if until := r.Purged[at].Until; !until.IsZero() {
				p.Next = until
			} else {
				p.Next = p.Next.Add(tidyInterval - purgeRetry) // a person must help first
			}
		}
		left = append(left, p)
	}
	return left
}
