// Package tablesql writes the SQL that reads the rows of a table: it casts the columns of files
// and log frames to the table's newest schema, converts times, and excludes deleted rows. Its
// functions have no state and are safe for concurrent use.
package tablesql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// Shown lists the columns that users see.
func Shown(s *manifest.Schema) []manifest.Column {
	columns := slices.Clone(s.Columns)
	if s.Rest || len(columns) == 0 {
		columns = append(columns, manifest.Column{ID: manifest.RestID, Name: catalog.RestColumn, Type: event.JSON})
	}
	return columns
}

// A Layout is the types of the newest schema's columns in some frames or files; 0 for a
// missing column.
type Layout []event.Type

// LayoutOf returns the types of the newest schema's columns in a schema version.
func LayoutOf(t *manifest.Table, version uint64) Layout {
	s := t.Schema(version)
	var types Layout
	for _, c := range Shown(t.Current()) {
		found := event.Type(0)
		if s != nil {
			if i := slices.IndexFunc(Shown(s), func(have manifest.Column) bool { return have.ID == c.ID }); i >= 0 {
				found = Shown(s)[i].Type
			}
		}
		types = append(types, found)
	}
	return types
}

// Join combines two layouts. ok is false if a column has two types.
func (l Layout) Join(other Layout) (joined Layout, ok bool) {
	joined = slices.Clone(l)
	for i, t := range other {
		if joined[i] != 0 && t != 0 && joined[i] != t {
			return nil, false
		}
		joined[i] = max(joined[i], t)
	}
	return joined, true
}

// Part returns a query that converts rows with the given column types to the newest
// schema. more lists further columns of the result.
func Part(t *manifest.Table, from string, types Layout, deletes []*manifest.Delete, more ...string) string {
	var list []string
	for i, c := range Shown(t.Current()) {
		list = append(list, castSQL(types[i], c)+" AS "+sqltext.QuoteName(c.Name))
	}
	sql := "SELECT " + strings.Join(append(list, more...), ", ") + " FROM " + from
	if len(deletes) > 0 {
		sql = "SELECT * FROM (" + sql + ") WHERE true"
		for _, d := range deletes { // a column may have widened to JSON since, and may not compare
			sql += " AND NOT coalesce(TRY((" + d.Predicate + "\n)), false)"
		}
	}
	return sql
}

// castSQL returns SQL that casts a column of an older version to a newer one. Text becomes a
// JSON string: a CAST would parse it as JSON source.
func castSQL(have event.Type, want manifest.Column) string {
	name, was := sqltext.QuoteName(want.Name), manifest.Column{Type: have}
	switch {
	case want.Type == 0:
		return "NULL"
	case have == 0:
		return fmt.Sprintf("CAST(NULL AS %s)", want.SQLType())
	case was.SQLType() == want.SQLType():
		return name
	case want.SQLType() == "JSON":
		return fmt.Sprintf("to_json(%s)", name)
	case want.Type == event.Timestamp || want.Type == event.TimestampNS:
		return toTimeSQL(have, want)
	}
	return fmt.Sprintf("CAST(%s AS %s)", name, want.SQLType())
}
