// Package publishing keeps the lake tables of an event store up to date. It derives orders to the
// committer from the manifest, records its reports, and runs it. The caller owns the manifests: it
// saves one that Prepare has changed before it sends the order, so that a step is never assigned
// twice. Only Run and CheckProgram run a process; the other functions are pure.
package publishing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/eventstore/lake"
)

const (
	// dueBytes and dueAfter are the size and the age at which a file with new rows is
	// published.
	dueBytes = 64 << 20
	dueAfter = 10 * time.Minute
	// A merged file whose rows are in the lake already is published instead of those files
	// once it replaces manifest.ReplacesMin of them, or once its day had no new rows for quietAfter:
	// then it is not merged any further. Each row is thus put about three times.
	quietAfter = 9 * time.Hour
	// A lake is tidied after tidyInterval, and a purge is tried again after purgeRetry if the
	// committer has not said when.
	tidyInterval = 6 * time.Hour
	purgeRetry   = 10 * time.Minute
)

// Prepare assigns the next step, if a table needs one, to the lake tables in next, and returns
// what to order of the committer, or nil if it has changed nothing. folder is the folder of the
// store, and opening the ID of its opening.
func Prepare(next *manifest.Manifest, folder, opening string, now time.Time) *lake.Order {
	order := &lake.Order{}
	step := next.LastStep + 1
	for _, t := range next.Tables {
		if t.Lake == nil {
			continue
		}
		if next := tablesql.Widened(t, step); next != nil && isSwapReady(t, next) {
			t.Lake = next.Lake
			for i, f := range t.Files {
				file := *f
				file.Misfits, file.MisfitsWidened = file.MisfitsWidened, 0
				t.Files[i] = &file
			}
		}
		columns := columnsOf(t)
		if t.Lake.Rebuilding && !isRebuilt(t, columns) {
			continue
		}
		files, names := wantedFiles(next, t, columns, folder, step, now)
		isSame, tidy := checksum(names, columns) == t.Lake.Files, tidyOf(t.Lake, now)
		if slices.ContainsFunc(next.Tables, func(of *manifest.Table) bool { return hasReturning(of, t.Lake) }) {
			tidy = nil
		}
		if isSame && tidy == nil || t.Lake.UUID == "" && len(names) == 0 {
			continue
		}
		ordered := step
		if isSame && t.Lake.Step >= next.Incarnations[len(next.Incarnations)-1].Step {
			ordered = t.Lake.Step
		} else if next.LastStep < step {
			next.AssignStep(opening)
		}
		known := *t.Lake
		known.Columns = append(slices.Clone(known.Columns), columns[len(known.Columns):]...)
		known.Ordered = ordered
		if tidy != nil {
			known.Tidied, known.Purges = now.UTC(), slices.Clone(known.Purges)
			for i := range known.Purges {
				known.Purges[i].Next = now.Add(purgeRetry).UTC() // unless the report says otherwise
			}
		}
		t.Lake, t.Files = &known, files
		o := orderOf(next, t, folder, names)
		o.Step, o.Tidy = ordered, tidy
		order.Tables = append(order.Tables, o)
	}
	if len(order.Tables) == 0 {
		return nil
	}
	return order
}

// hasReturning reports whether a table has files that must come back to the disk and whose objects may be
// in a lake: its newest snapshot does not name them.
func hasReturning(t *manifest.Table, l *manifest.Lake) bool {
	return slices.ContainsFunc(t.Files, func(f *manifest.File) bool {
		return t.MustReturn(f) && (l.Location == "" || placeOf(f) == lake.Address(l.Location, ""))
	})
}

// placeOf returns where the lake table with the data of a file has its files: the result of
// lake.Address without a name.
func placeOf(f *manifest.File) string {
	day, name := path.Split(f.Remote.Address)
	return strings.TrimSuffix(strings.TrimSuffix(f.Remote.Address, name), path.Base(day)+"/")
}

// hasPassed reports whether a time has passed since another one. If that one is yet to come, the clock was
// ahead then, and nobody should wait for it.
func hasPassed(since time.Time, d time.Duration, now time.Time) bool {
	return since.After(now) || !now.Before(since.Add(d))
}

// tidyOf returns how an order must tidy the lake, or nil if that is not due.
func tidyOf(l *manifest.Lake, now time.Time) *lake.Tidy {
	isDue := func(p manifest.LakePurge) bool { return !now.Before(p.Next) }
	if !hasPassed(l.Tidied, tidyInterval, now) && !slices.ContainsFunc(l.Purges, isDue) {
		return nil
	}
	tidy := lake.DefaultTidy()
	for _, p := range l.Purges {
		tidy.Purges = append(tidy.Purges, lake.Purge{Number: p.Segment, At: p.At})
	}
	return tidy
}

// Look returns an order that only asks for a report on the ordered files of tables.
func Look(m *manifest.Manifest, folder string, tables []uint32) *lake.Order {
	order := &lake.Order{}
	for _, t := range m.Tables {
		if t.Lake == nil || !slices.Contains(tables, t.ID) {
			continue
		}
		ordered := *t
		ordered.Files = slices.DeleteFunc(slices.Clone(t.Files), func(f *manifest.File) bool { return f.Step == 0 })
		_, all := wantedFiles(m, &ordered, t.Lake.Columns, folder, m.LastStep, time.Time{})
		o := orderOf(m, t, folder, all)
		o.Look = true
		order.Tables = append(order.Tables, o)
	}
	return order
}

// wantedFiles returns the files of a table, with step set on the files that this order publishes for
// the first time, and the files that the lake must have.
func wantedFiles(m *manifest.Manifest, t *manifest.Table, columns []manifest.LakeColumn, folder string, step uint64, now time.Time) (files []*manifest.File, all []lake.File) {
	w := t.Lake.Widening
	swaps := w != nil && w.Step > 0
	newest := map[string]int64{} // time of the newest rows of a day
	for _, f := range t.Files {
		newest[f.Day] = max(newest[f.Day], f.Sealed)
	}
	isQuiet := func(f *manifest.File) bool {
		last := f.Sealed
		if f.Day != "" {
			last = newest[f.Day]
		}
		return hasPassed(time.Unix(last, 0), quietAfter, now)
	}
	for _, f := range t.Files {
		switch {
		case f.Step > 0:
		case f.Remote != nil: // it must come back first
			files = append(files, f)
			continue
		case swaps && isReady(t, f, columns):
			published := *f
			published.Step = step
			f = &published
		case len(f.Replaces) > 0 && (!isReady(t, f, columns) || !f.Changed && (len(f.Replaces) < manifest.ReplacesMin && !isQuiet(f) || f.Gone || w != nil)):
			for _, r := range f.Replaces {
				all = append(all, lakeFile(r))
			}
			files = append(files, f)
			continue
		case len(f.Replaces) == 0 && (!isReady(t, f, columns) || f.Bytes < dueBytes && !hasPassed(time.Unix(f.Sealed, 0), dueAfter, now)):
			files = append(files, f)
			continue
		default:
			published := *f
			published.Step = step
			f = &published
		}
		one := lake.File{Name: nameOf(m, f), Path: t.Path(folder, f.Name), Rows: f.Rows, Misfits: f.Misfits, Step: f.Step}
		if f.Remote != nil {
			one.Path = ""
		}
		one.Replaces = lakeFiles(f.Replaces)
		all, files = append(all, one), append(files, f)
	}
	return files, all
}

func lakeFile(f manifest.LakeFile) lake.File {
	return lake.File{Name: f.Name, Rows: f.Rows, Step: f.Step, Replaces: lakeFiles(f.Replaces)}
}

func lakeFiles(all []manifest.LakeFile) (files []lake.File) {
	for _, f := range all {
		files = append(files, lakeFile(f))
	}
	return files
}

// Published returns the name in the lake of a file that the lake has as it is, or "".
func Published(m *manifest.Manifest, t *manifest.Table, f *manifest.File) string {
	if f.Step == 0 || f.Remote != nil || t.Publication(f) != manifest.Published || t.Lake.Error != "" || t.Lake.Location == "" || t.Lake.Deletes > 0 || t.Lake.Widening != nil {
		return ""
	}
	return nameOf(m, f)
}

// nameOf returns the name of a file in the lake.
func nameOf(m *manifest.Manifest, f *manifest.File) string {
	incarnation := m.IncarnationOf(f.Segment)
	if incarnation == nil { // it was written before stores had incarnations
		incarnation = &m.Incarnations[0]
	}
	return lake.FileName(f.Name, incarnation.ID)
}

// Replaced returns the lake files that a file of so many rows, merged or rewritten from files of a
// table, replaces, and whether it has other rows than these. Each of them that the lake may not have
// yet includes its own Replaces.
func Replaced(m *manifest.Manifest, t *manifest.Table, of []*manifest.File, rows int64) (replaces []manifest.LakeFile, changed bool) {
	for _, f := range of {
		if f.Step > 0 {
			one := manifest.LakeFile{Name: nameOf(m, f), Rows: f.Rows, Step: f.Step}
			if t.Lake != nil && f.Step > t.Lake.Step {
				one.Replaces = f.Replaces
			}
			replaces = append(replaces, one)
		} else {
			replaces = append(replaces, f.Replaces...)
			changed = changed || f.Changed || len(f.Replaces) == 0
		}
		rows -= f.Rows
	}
	return replaces, len(replaces) > 0 && (changed || rows != 0)
}

// checksum returns a checksum of what an order wants.
func checksum(all []lake.File, columns []manifest.LakeColumn) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, f.Name+"\n")
	}
	slices.Sort(lines)
	sum := sha256.New()
	io.WriteString(sum, strings.Join(lines, ""))
	for _, c := range columns {
		fmt.Fprintf(sum, "%s\x00%s\x00%d\x00", c.Name, c.Type, c.Widened)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

func orderOf(m *manifest.Manifest, t *manifest.Table, folder string, all []lake.File) lake.TableOrder {
	o := lake.TableOrder{Settings: settingsOf(t), ID: t.ID, UUID: t.Lake.UUID, Location: t.Lake.Location, Step: m.LastStep, Columns: []lake.Column{}, Files: []lake.File{}}
	for _, one := range m.Incarnations {
		o.Incarnations = append(o.Incarnations, lake.Incarnation{ID: one.ID, Begun: one.Begun, Step: one.Step})
	}
	for _, one := range m.Openings {
		o.Openings = append(o.Openings, lake.Opening{ID: one.ID, Step: one.Step})
	}
	for _, other := range m.Tables {
		o.Tables = append(o.Tables, other.ID)
		if other.ID == t.ID {
			continue
		}
		if other.Lake != nil {
			o.Others = append(o.Others, lake.Other{ID: other.ID, UUID: other.Lake.UUID, Left: other.Left})
		}
		for _, f := range other.Files {
			if other.MustReturn(f) {
				o.Returning = append(o.Returning, placeOf(f))
			}
		}
	}
	slices.Sort(o.Returning)
	o.Returning = slices.Compact(o.Returning)
	for i, c := range t.Lake.Ordering() {
		column := lake.Column{ID: c.ID, Name: c.Name, Type: lake.Type(c.Type), Fitted: c.FittedID(), Lake: c.Lake}
		if w := t.Lake.Widening; w != nil && w.Step > 0 && w.At == i {
			column.Former = t.Lake.Columns[i].Lake
		}
		o.Columns = append(o.Columns, column)
	}
	o.Files = append(o.Files, all...)
	return o
}

func settingsOf(t *manifest.Table) lake.Settings {
	return lake.Settings{Warehouse: t.Lake.Warehouse, Catalog: t.Lake.Catalog, Table: t.Lake.Table}
}
