//go:build linux && cgo

package eventstore

import (
	"iter"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/sqlworker"
)

// An ExternalTable is a table whose rows are not in the store. A query that names it
// gets a copy of its own. A table of the store that has the
// same name hides it.
type ExternalTable struct {
	Name    string
	Columns []ColumnInfo
	// Rows yields values that encode as JSON objects, with the columns for keys.
	// It is called once for each query, by several at the same time.
	Rows func() iter.Seq2[any, error]
}

// externalTables returns the external tables that a query may name.
func (s *Store) externalTables(sql string) (named []sqlworker.External) {
	sql = strings.ToLower(sql)
	for _, e := range append(slices.Clone(s.options.External), s.queriesExternal()) {
		if name := strings.ToLower(e.Name); strings.Contains(sql, name) && s.tableNamed(name) == nil {
			named = append(named, sqlworker.External{Name: e.Name, Columns: e.Columns, Rows: e.Rows()})
		}
	}
	return named
}
