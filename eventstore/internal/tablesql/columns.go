package tablesql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// StoredColumns returns the columns in files of the newest schema.
func StoredColumns(t *manifest.Table) []manifest.Column {
	return slices.DeleteFunc(Shown(t.Current()), func(c manifest.Column) bool { return c.Type == 0 })
}

// ColumnList returns the stored columns as a list in SQL.
func ColumnList(t *manifest.Table) string {
	var names []string
	for _, c := range StoredColumns(t) {
		names = append(names, c.Name)
	}
	return QuotedList(names)
}

// QuotedList returns names as a list in SQL.
func QuotedList(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, sqltext.QuoteName(name))
	}
	return strings.Join(list, ", ")
}

// SortColumns returns the columns that a table's files are sorted by.
func SortColumns(t *manifest.Table) (names []string) {
	wanted := t.Sort
	if len(wanted) == 0 {
		wanted = []string{t.Event, t.Time}
	}
	for _, name := range wanted {
		for _, c := range t.Current().Columns {
			if name != "" && strings.EqualFold(c.Name, name) && c.Type != 0 {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// SortKey returns SQL for a BLOB that sorts rows by the given columns.
func SortKey(columns []string) string {
	var list strings.Builder
	for _, name := range columns {
		list.WriteString(sqltext.QuoteName(name) + ", 'ASC NULLS LAST', ")
	}
	return "create_sort_key(" + list.String() + "'', 'ASC NULLS LAST')" // with a text, it is a BLOB for all types
}

// A HiddenColumn is a column of files that queries do not see.
type HiddenColumn struct {
	ID   int32 // field ID in files
	Name string
	SQL  string // its value
}

// HiddenColumns returns the columns that files need besides the stored ones, to be read as
// files of a lake: for each column with nanoseconds, one with its microseconds.
func HiddenColumns(t *manifest.Table) (hidden []HiddenColumn) {
	stored := StoredColumns(t)
	for _, c := range stored {
		if c.Type != event.TimestampNS {
			continue
		}
		name := fmt.Sprintf("#micros %d", c.ID)
		for slices.ContainsFunc(stored, func(other manifest.Column) bool { return strings.EqualFold(other.Name, name) }) {
			name = "#" + name
		}
		nanos := "epoch_ns(" + sqltext.QuoteName(c.Name) + ")"
		hidden = append(hidden, HiddenColumn{
			ID: manifest.MicrosID(c.ID), Name: name,
			SQL: fmt.Sprintf("make_timestamp((%s - (%[1]s %% 1000 + 1000) %% 1000) // 1000)", nanos), // rounded down
		})
	}
	return hidden
}
