//go:build cgo

package eventstore

import (
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A segment is one physical table with the layout of one schema version. A new
// layout starts a new segment, never an ALTER: a segment is immutable in shape,
// so that one can become a file of its own, be attached, compacted and dropped
// without touching the others. The table that users see is a view that casts
// the segments to the newest version and unites them.
//
// Today all segments stand in one DuckDB file beside the ranges, because a
// transaction can write to one attached file only.
type segment struct {
	number uint64
	schema *schema
	rows   int64
}

// foldRows is the size up to which a segment is copied into its successor
// instead of standing beside it: one row group of DuckDB. Young tables change
// often; without this their view would unite hundreds of crumbs.
const foldRows = 122_880

func (g *segment) name() string { return fmt.Sprintf("segment.s%d", g.number) }

// createSQL makes the segment's table. _rest is always there, so that an event
// without fields is a row too.
func (g *segment) createSQL() string {
	var sql strings.Builder
	fmt.Fprintf(&sql, "CREATE TABLE %s (", g.name())
	for _, c := range g.schema.stored() {
		fmt.Fprintf(&sql, "%s %s, ", quote(c.Name), c.sqlType())
	}
	sql.WriteString(quote(restColumn) + " JSON)")
	return sql.String()
}

// foldSQL copies the rows of an older segment into this one.
func (g *segment) foldSQL(old *segment) string {
	return fmt.Sprintf("INSERT INTO %s %s", g.name(), old.selectSQL(g.schema.stored(), true))
}

// selectSQL reads the segment's rows as columns of a newer version.
func (g *segment) selectSQL(columns []column, rest bool) string {
	have := map[string]column{}
	for _, c := range g.schema.stored() {
		have[c.Name] = c
	}
	var list []string
	for _, c := range columns {
		list = append(list, castSQL(have[c.Name], c)+" AS "+quote(c.Name))
	}
	if rest {
		list = append(list, quote(restColumn))
	}
	return fmt.Sprintf("SELECT %s FROM %s", strings.Join(list, ", "), g.name())
}

// castSQL turns a column of an older version into one of a newer. Text becomes
// a JSON string: a CAST would read it as JSON source.
func castSQL(have, want column) string {
	name := quote(want.Name)
	switch {
	case want.Type == 0:
		return "NULL"
	case have.Type == 0:
		return fmt.Sprintf("CAST(NULL AS %s)", want.sqlType())
	case have.sqlType() == want.sqlType():
		return name
	case want.Type == event.JSON:
		return fmt.Sprintf("to_json(%s)", name)
	}
	return fmt.Sprintf("CAST(%s AS %s)", name, want.sqlType())
}

// viewSQL makes the table that users see.
func viewSQL(table string, s *schema, segments []*segment) string {
	var parts []string
	for _, g := range segments {
		parts = append(parts, g.selectSQL(s.Columns, s.Rest || len(s.Columns) == 0))
	}
	return fmt.Sprintf("CREATE OR REPLACE VIEW main.%s AS %s", quote(table), strings.Join(parts, " UNION ALL "))
}
