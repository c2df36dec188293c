package publishing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// A column is widened in the lake in three parts. All files that the lake has are rewritten: the
// new ones have new names, the column in its present type, and the hidden column for the lake's
// type, so that they serve both tables. Then one order has all files, and a column in place of
// the former one; from then on all orders have it, until the lake has covered one.

// Widen begins to give a column of a lake table its present type. It returns an error if there
// is nothing to do, or if it cannot be done.
func Widen(t *manifest.Table, column string, now time.Time) (changed bool, err error) {
	if t.Lake == nil {
		return false, refuse("", "table %s is not published in a lake", t.Name)
	}
	i := slices.IndexFunc(t.Current().Columns, func(c manifest.Column) bool { return strings.EqualFold(c.Name, column) })
	if i < 0 {
		return false, refuse("perigee table show "+t.Name+" lists its columns", "table %s has no column %s", t.Name, column)
	}
	c := &t.Current().Columns[i]
	at := tablesql.LakeColumnOf(t, c)
	switch w := t.Lake.Widening; {
	case at < 0:
		return false, refuse("the next commit adds it with its present type", "the lake table has no column for %s yet", c.Name)
	case tablesql.IsNatural(c, t.Lake.Columns, &t.Lake.Columns[at]):
		return false, refuse("", "column %s has its present type in the lake, %s: there is nothing to widen", c.Name, t.Lake.Columns[at].Type)
	case w != nil && w.Column == c.ID:
		return false, nil
	case w != nil:
		return false, refuse("wait until it is done: perigee table show "+t.Name+" shows its progress", "another column of table %s is being widened in the lake", t.Name)
	case t.Lake.Widenings >= manifest.WidenedMax:
		return false, refuse("give the table another name in the lake (lake.table): it is then published again, with the present types", "columns of table %s were widened %d times", t.Name, manifest.WidenedMax)
	case t.Lake.Foreign > 0 || slices.ContainsFunc(t.Files, func(f *manifest.File) bool { return f.Gone }):
		return false, refuse(foreignHint, "other engines have written files of lake table %s, which would lose the column", settingsOf(t).Table)
	}
	known := *t.Lake
	known.Widenings++
	known.Widening = &manifest.Widening{Column: c.ID, RequestedAt: now.UTC()}
	t.Lake = &known
	return true, nil
}

const foreignHint = "give the table another name in the lake (lake.table): it is then published again, with the present types"

func refuse(hint, format string, args ...any) error {
	return &event.PermanentError{Err: fmt.Errorf(format, args...), Hint: hint}
}

// CancelWiden ends the widening of a column, unless a commit with its new type was begun.
func CancelWiden(t *manifest.Table, column string) error {
	if t.Lake == nil || t.Lake.Widening == nil || !strings.EqualFold(wideningName(t), column) {
		return refuse("perigee table show "+t.Name+" names the column being widened", "column %s of table %s is not being widened in the lake", column, t.Name)
	}
	if t.Lake.Widening.Step > 0 {
		return refuse("wait until it is done", "the commit that widens column %s was begun: the lake may have it already", column)
	}
	known := *t.Lake
	known.Widening = nil
	t.Lake = &known
	return nil
}

// wideningName returns the name of the column that is being widened, or "".
func wideningName(t *manifest.Table) string {
	if t.Lake.Widening == nil {
		return ""
	}
	if c := t.Current().ByID(t.Lake.Widening.Column); c != nil {
		return c.Name
	}
	return ""
}

// isSwapReady reports whether one order can give the lake all files with the columns of next.
func isSwapReady(t, next *manifest.Table) bool {
	columns := columnsOf(next)
	return !slices.ContainsFunc(t.Files, func(f *manifest.File) bool {
		return f.Step > 0 || f.Remote != nil || f.Gone || f.Changed || !isReady(next, f, columns)
	})
}

// needWiden returns the files that must be rewritten before a column gets its new type.
func needWiden(t *manifest.Table) (files []*manifest.File) {
	next := tablesql.Widened(t, 1)
	if next == nil {
		return nil
	}
	columns := columnsOf(next)
	for _, f := range t.Files {
		if !f.Undivided && !f.Gone && !t.MustReturn(f) && (f.Step > 0 && t.Publication(f) == manifest.Published || f.Step == 0 && !isReady(next, f, columns)) {
			files = append(files, f)
		}
	}
	return files
}

// rebuild sets the lake columns of a restored store to the types that an earlier incarnation widened
// them to after the backup. The files of the lake have these types, under names that this incarnation
// does not know, and its own files do not: all are written again, under new names.
func rebuild(t *manifest.Table, widened []lake.Column) {
	known := *t.Lake
	known.Columns = slices.Clone(known.Ordering())
	known.Widening, known.Rebuilding = nil, true
	known.Widenings++
	for i := range known.Columns {
		c := &known.Columns[i]
		for _, w := range widened {
			if w.ID != c.ID {
				continue
			}
			c.Type, c.Lake, c.Widened = string(w.Type), w.Lake, c.Widened+1
			c.JSON = w.Type == lake.String
			if now := t.Current().ByID(c.Source()); now != nil && now.Type == event.String {
				c.JSON = false
			}
		}
		if c.ID == manifest.RestID { // its hidden columns differ
			c.Widened = known.Widenings
		}
	}
	t.Lake = &known
	for i, f := range t.Files {
		if f.Gone { // another engine has its rows
			continue
		}
		file := *f
		file.Step, file.Replaces, file.Changed, file.Open = 0, nil, false, false
		t.Files[i] = &file
	}
}

// isRebuilt reports whether all files have the types of the lake's columns.
func isRebuilt(t *manifest.Table, columns []manifest.LakeColumn) bool {
	return !slices.ContainsFunc(t.Files, func(f *manifest.File) bool {
		return !f.Gone && (f.Remote != nil || !isReady(t, f, columns))
	})
}
