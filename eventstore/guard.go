//go:build cgo

package eventstore

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Three barriers confine a query. DuckDB is shut off from files, network,
// extensions and settings as a whole (shutSQL). The transaction is read-only.
// And the guard below reads DuckDB's own syntax tree of the query first,
// because some functions do more than read: enable_logging, given a path, ends
// the whole process, though a SELECT may call it.

// tableFunctions are those that a query may read from.
var tableFunctions = parseSet(`range generate_series unnest repeat repeat_row json_each json_tree summary histogram
	histogram_values duckdb_columns duckdb_constraints duckdb_databases duckdb_functions duckdb_indexes duckdb_keywords
	duckdb_memory duckdb_schemas duckdb_settings duckdb_tables duckdb_types duckdb_views pg_timezone_names
	pragma_database_size pragma_show pragma_storage_info pragma_table_info pragma_version`)

// forbiddenFunctions are the others that a query may not call.
var forbiddenFunctions = parseSet(`write_log getenv nextval currval`)

func parseSet(names string) map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(names) {
		all[name] = true
	}
	return all
}

// explainWords are what may stand before the query that EXPLAIN explains. The
// DuckDB gives the tree of the query, but not that of its EXPLAIN.
var explainWords = regexp.MustCompile(`(?i)^\s*EXPLAIN\s+(ANALYZE\s+)?(\(\s*((ANALYZE|FORMAT\s+\w+)\s*,?\s*)+\)\s*)?`)

func errNotReading(what string) error {
	return &QueryError{Message: what, Hint: "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are answered"}
}

// checkReadOnly reports whether sql is one statement that only reads. parsed is false
// when it is no SQL at all, which DuckDB explains better than we could.
func (c *conn) checkReadOnly(sql string) (parsed bool, err error) {
	found, err := c.run(`SELECT json_serialize_sql(CAST(? AS VARCHAR))`, explainWords.ReplaceAllString(sql, ""))
	if err != nil {
		return false, err
	}
	var tree struct {
		Error      bool   `json:"error"`
		ErrorType  string `json:"error_type"`
		Statements []any  `json:"statements"`
	}
	if err := json.Unmarshal([]byte(fmt.Sprint(found[0][0])), &tree); err != nil {
		return false, fmt.Errorf("read the syntax tree: %w", err)
	}
	switch {
	case tree.Error && tree.ErrorType == "parser":
		return false, nil
	case tree.Error:
		return true, errNotReading("the statement is not one that only reads")
	case len(tree.Statements) == 0:
		return true, errNotReading("the query is empty")
	case len(tree.Statements) > 1:
		return true, &QueryError{Message: fmt.Sprintf("%d statements at once", len(tree.Statements)), Hint: "send one statement"}
	}
	return true, checkNode(tree.Statements[0])
}

// checkNode looks for calls of functions that a query may not call.
func checkNode(node any) error {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := checkNode(child); err != nil {
				return err
			}
		}
	case map[string]any:
		if name, ok := node["function_name"].(string); ok && forbiddenFunctions[strings.ToLower(name)] {
			return errNotReading(name + " is not open to queries")
		}
		if node["type"] == "TABLE_FUNCTION" {
			call, _ := node["function"].(map[string]any)
			if name, _ := call["function_name"].(string); !tableFunctions[strings.ToLower(name)] {
				return errNotReading(name + " is not open to queries")
			}
		}
		for _, child := range node {
			if err := checkNode(child); err != nil {
				return err
			}
		}
	}
	return nil
}
