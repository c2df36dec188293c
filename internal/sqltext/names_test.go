package sqltext

import (
	"strings"
	"testing"
)

func TestTableNameHint(t *testing.T) {
	for _, name := range []string{"events", "_a1", "duckdb", "information_schema", "at", strings.Repeat("x", 63)} {
		if hint := TableNameHint(name); hint != "" {
			t.Errorf("%q: %s", name, hint)
		}
	}
	for _, name := range []string{"", "1st", "a b", "é", "../events", strings.Repeat("x", 64), "duckdb_views", "DuckDB_x"} {
		if TableNameHint(name) == "" {
			t.Errorf("%q is a table's name", name)
		}
	}
}
