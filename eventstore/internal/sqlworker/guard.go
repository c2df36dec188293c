//go:build linux && cgo

package sqlworker

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/internal/nearest"
)

// Barriers confine a query. DuckDB is shut off from the files of others, network,
// extensions and settings as a whole (lockdownSQL). The transaction is read-only. The guard
// below reads DuckDB's own syntax tree of the query first, and admits only tables, functions
// that are listed, and statements of bounded depth and growth: enable_logging, given a path,
// ends the whole process, though a SELECT may call it, and so does a deep document in a
// function that recurses. What grows while it runs is watched (see memory.go), and the
// process itself can do little (see confine.go).

const (
	sqlMax   = 256 << 10 // bytes of a statement: DuckDB plans long ones for minutes
	treeMax  = 400       // depth of the syntax tree
	namesMax = 16        // parts of a column's name: DuckDB resolves each by recursion
)

// explainWords are what may stand before the query that EXPLAIN explains. The
// DuckDB gives the tree of the query, but not that of its EXPLAIN.
var explainWords = regexp.MustCompile(`(?i)^\s*EXPLAIN\s+(ANALYZE\s+)?(\(\s*((ANALYZE|FORMAT\s+\w+)\s*,?\s*)+\)\s*)?`)

// pivotWord is in a PIVOT that DuckDB would first read the values for: several statements.
var pivotWord = regexp.MustCompile(`(?i)\bPIVOT(_WIDER)?\b`)

func errNotReading(what string) error {
	return &protocol.QueryError{Message: what, Hint: "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are answered"}
}

// errNotListed says that a call is of a function that is not on a list.
func (s source) errNotListed(call syntaxNode, listed map[string]bool) error {
	name := call.text("function_name")
	q := &protocol.QueryError{Message: "function " + name + " is not allowed", Hint: "perigee list functions shows those that are"}
	names := slices.Sorted(maps.Keys(listed))
	if near := nearest.Name(strings.ToLower(name), names); near != "" {
		q.Hint = fmt.Sprintf("did you mean %s? %s", near, q.Hint)
	}
	q.Line, q.Column = s.place(call)
	return q
}

// A statement is one statement that only reads, by its syntax.
type statement struct {
	tree   map[string]any
	tables []string // names of tables that it reads, in lower case; those of WITH among them, and perigee.NAME
	system bool     // it reads the catalog

	explained bool // it is explained and not run
	source    source
}

// parse returns the statement that sql is, or an error if it is none that only reads. It
// returns nil when sql is no SQL at all, which DuckDB explains better than we could.
func (c *conn) parse(sql string) (*statement, error) {
	if len(sql) > sqlMax {
		return nil, &protocol.QueryError{Message: fmt.Sprintf("the query has %d bytes, and at most %d are read", len(sql), sqlMax), Hint: "join with a table instead of listing values"}
	}
	plain := explainWords.ReplaceAllString(sql, "")
	found, err := c.run(`SELECT CAST(json_serialize_sql(CAST(? AS VARCHAR)) AS VARCHAR)`, protocol.Param{Value: plain})
	if err != nil {
		return nil, nil
	}
	var tree struct {
		Error      bool             `json:"error"`
		ErrorType  string           `json:"error_type"`
		Statements []map[string]any `json:"statements"`
	}
	text, _ := found[0][0].(string)
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		return nil, &protocol.QueryError{Message: "the query is nested too deeply", Hint: "split it into WITH parts"}
	}
	switch {
	case tree.Error && tree.ErrorType == "parser":
		return nil, nil
	case tree.Error && pivotWord.MatchString(plain):
		return nil, &protocol.QueryError{Message: "PIVOT must list its values", Hint: "write PIVOT events ON event IN ('login', 'logout') USING count(*)"}
	case tree.Error:
		return nil, errNotReading("the statement is not one that only reads")
	case len(tree.Statements) == 0:
		return nil, errNotReading("the query is empty")
	case len(tree.Statements) > 1:
		return nil, &protocol.QueryError{Message: fmt.Sprintf("%d statements at once", len(tree.Statements)), Hint: "send one statement"}
	}
	from := source{sql: sql, prefix: len(sql) - len(plain)}
	if err := from.checkStatement(tree.Statements[0]); err != nil {
		return nil, err
	}
	s := &statement{tree: tree.Statements[0], explained: plain != sql, source: from}
	return s, s.checkTables(s.tree)
}

// SystemSchema is the schema of the external tables. A name without a schema means a table of
// the store first, and then one of these.
const SystemSchema = "perigee"

// schemas are those that a query may name.
var schemas = []string{"", "main", "temp", SystemSchema, "information_schema", "pg_catalog"}

// catalogs are those that a query may name.
var catalogs = []string{"", "events", "temp", "system"}

// checkTables collects the tables that a statement reads. A name with a dot, a slash or a
// star would be that of a file.
func (s *statement) checkTables(node any) error {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := s.checkTables(child); err != nil {
				return err
			}
		}
	case map[string]any:
		n := syntaxNode(node)
		if n["type"] == "TABLE_FUNCTION" || n["type"] == "SHOW_REF" {
			s.system = true
		}
		if name := n.text("table_name"); n["type"] == "BASE_TABLE" || n["type"] == "SHOW_REF" && name != "" {
			if err := s.addTable(n, strings.Trim(name, `"`)); err != nil {
				return err
			}
		}
		for _, child := range node {
			if err := s.checkTables(child); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *statement) addTable(n syntaxNode, name string) error {
	schema, catalog := strings.ToLower(n.text("schema_name")), strings.ToLower(n.text("catalog_name"))
	// A name of two parts may be that of a catalog.
	if !slices.Contains(schemas, schema) && !(catalog == "" && slices.Contains(catalogs, schema)) || !slices.Contains(catalogs, catalog) || strings.ContainsAny(name, "./\\*?:[") {
		return &protocol.QueryError{Message: "Table with name " + name + " does not exist!", Hint: "queries read the tables that SHOW TABLES lists, and no files"}
	}
	if schema == SystemSchema { // a table of the store may have the name without the schema
		name = SystemSchema + "." + name
		n["table_name"] = name
	}
	s.system = s.system || schema == "information_schema" || schema == "pg_catalog" || strings.HasPrefix(strings.ToLower(name), "duckdb_")
	s.tables = append(s.tables, strings.ToLower(name))
	return nil
}

// reads reports whether the statement may read a table.
func (s *statement) reads(table string) bool {
	return s.system || slices.Contains(s.tables, strings.ToLower(table))
}

// readsUnknown reports whether the statement may read a table that neither m nor external has.
// DuckDB then needs all tables, to suggest one of them.
func (s *statement) readsUnknown(m *manifest.Manifest, external []protocol.ExternalTable) bool {
	return slices.ContainsFunc(s.tables, func(name string) bool {
		return m.Table(name) == nil && !slices.ContainsFunc(external, func(e protocol.ExternalTable) bool {
			return strings.EqualFold(strings.TrimPrefix(name, SystemSchema+"."), e.Name)
		})
	})
}

// A syntaxNode is an object in DuckDB's syntax tree.
type syntaxNode map[string]any

// text returns a member that is text, or "".
func (n syntaxNode) text(key string) string {
	text, _ := n[key].(string)
	return text
}

// child returns a member that is an object, or nil.
func (n syntaxNode) child(key string) syntaxNode {
	child, _ := n[key].(map[string]any)
	return child
}

// list returns the objects of a member that is an array.
func (n syntaxNode) list(key string) (all []syntaxNode) {
	items, _ := n[key].([]any)
	for _, item := range items {
		if node, ok := item.(map[string]any); ok {
			all = append(all, node)
		}
	}
	return all
}

// nodes returns all objects that are members of the node, or in an array of one.
func (n syntaxNode) nodes() (all []syntaxNode) {
	for key, member := range n {
		if child, ok := member.(map[string]any); ok {
			all = append(all, child)
		}
		all = append(all, n.list(key)...)
	}
	return all
}

// checkStatement returns an error unless all functions are listed, their arguments
// bounded, and depth and growth within bounds.
func (s source) checkStatement(statement any) error {
	if err := s.checkNode(statement, 0); err != nil {
		return err
	}
	if growthOf(statement) > growthMax {
		return &protocol.QueryError{
			Message: fmt.Sprintf("the query may multiply the size of its values by more than %d", growthMax),
			Hint:    "join fewer texts, lists and structs, or shorter ones",
		}
	}
	return nil
}

func (s source) checkNode(node any, depth int) error {
	if depth > treeMax {
		return &protocol.QueryError{Message: "the query is nested too deeply", Hint: "split it into WITH parts"}
	}
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := s.checkNode(child, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		return s.checkObject(node, depth)
	}
	return nil
}

func (s source) checkObject(node syntaxNode, depth int) error {
	if names, _ := node["column_names"].([]any); len(names) > namesMax {
		return &protocol.QueryError{Message: fmt.Sprintf("a column's name has %d parts, and at most %d are read", len(names), namesMax)}
	}
	if size, ok := node["size"].(float64); ok && size > countMax {
		return &protocol.QueryError{Message: fmt.Sprintf("an array type has %.0f elements, and at most %d are read", size, countMax), Hint: "use a list: INTEGER[]"}
	}
	if name := node.text("function_name"); name != "" {
		if !scalarFunctions[strings.ToLower(name)] {
			return s.errNotListed(node, scalarFunctions)
		}
		if err := checkCall(node); err != nil {
			return err
		}
	}
	if !slices.Contains(lambdaFunctions, strings.ToLower(node.text("function_name"))) {
		if err := checkArrows(node.nodes()); err != nil {
			return err
		}
	}
	if node["type"] == "TABLE_FUNCTION" {
		return s.checkTableFunction(node, depth)
	}
	for _, child := range node {
		if err := s.checkNode(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// checkTableFunction checks a function that gives rows, which are not in memory at the
// same time: its arguments need no bounds.
func (s source) checkTableFunction(node syntaxNode, depth int) error {
	call := node.child("function")
	if !tableFunctions[strings.ToLower(call.text("function_name"))] {
		return s.errNotListed(call, tableFunctions)
	}
	for _, child := range []any{call["children"], node["sample"]} {
		if err := s.checkNode(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
