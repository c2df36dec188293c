//go:build linux && cgo

package statement

import (
	"testing"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
)

// TestTablesOfStatements: a statement reads the tables that it names, and every table if it
// lists the catalog.
func TestTablesOfStatements(t *testing.T) {
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer duck.Close(&db)
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for sql, others := range map[string]bool{
		"SELECT a FROM wanted": false, "FROM Wanted w WHERE EXISTS (FROM wanted)": false, "SUMMARIZE wanted": true,
		"FROM wanted, range(3)": true, "FROM wanted, duckdb_tables": true, "FROM wanted, information_schema.tables": true,
	} {
		s, err := Parse(c, sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if !s.Reads("WANTED") || s.Reads("other") != others {
			t.Errorf("%s reads the table that it names: %v, others: %v, want %v", sql, s.Reads("WANTED"), s.Reads("other"), others)
		}
	}
}

// TestStatementsWithoutRows: a statement that describes a table or shows its plan reads no rows.
func TestStatementsWithoutRows(t *testing.T) {
	db, err := duckdb.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer duck.Close(&db)
	c, err := duckdb.Connect(db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for sql, rows := range map[string]bool{
		"FROM wanted": true, "SUMMARIZE wanted": true, "DESCRIBE wanted": false, "EXPLAIN FROM wanted": false, "explain\n(format json) FROM wanted": false,
		"EXPLAIN ANALYZE FROM wanted": true, "explain (analyze) FROM wanted": true, "EXPLAIN (FORMAT json, ANALYZE) FROM wanted": true,
	} {
		s, err := Parse(c, sql)
		if err != nil || s == nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if s.ReadsRows("WANTED") != rows {
			t.Errorf("%s reads rows: %v, want %v", sql, !rows, rows)
		}
	}
}

// TestDepthIsBounded: every construct around a list counts as one level of the syntax tree.
func TestDepthIsBounded(t *testing.T) {
	around := map[string]func(list any) any{
		"list":   func(list any) any { return []any{list} },
		"object": func(list any) any { return map[string]any{"children": list} },
		"function": func(list any) any {
			return map[string]any{"type": "TABLE_FUNCTION", "function": map[string]any{"function_name": "range", "children": list}}
		},
		"sample": func(list any) any {
			return map[string]any{"type": "TABLE_FUNCTION", "function": map[string]any{"function_name": "range"}, "sample": list}
		},
	}
	for name, wrap := range around {
		var list any = []any{}
		for range treeMax - 1 {
			list = []any{list}
		}
		if err := (source{}).checkNode(wrap(list), 0); err != nil {
			t.Errorf("%s around %d levels: %v", name, treeMax, err)
		}
		if err := (source{}).checkNode(wrap([]any{list}), 0); err == nil {
			t.Errorf("%s around %d levels is read", name, treeMax+1)
		}
	}
}
