package tablesql

import (
	"slices"
	"strings"

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
