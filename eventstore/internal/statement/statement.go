// Package statement parses SQL statements and decides whether they may run. A statement must
// be a single one that only reads, from tables and listed functions, with bounded size, depth
// and growth. The package works on the syntax tree of DuckDB's parser and needs no cgo.
//
// Three barriers confine a query. First, DuckDB has no access to files, network, extensions
// and settings, and the transaction is read-only. Second, this package rejects calls that
// DuckDB would allow: a SELECT may call enable_logging, which ends the process if it is given
// a path, and a deep document crashes a recursive function. Third, the worker limits the
// memory of queries, and its process is sandboxed.
//
// A parsed Statement is shared and immutable. A Cache is safe for concurrent use.
package statement

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/nearest"
)

const (
	sqlMax   = 256 << 10 // bytes of a statement: DuckDB takes minutes to plan long ones
	treeMax  = 400       // depth of the syntax tree
	namesMax = 16        // parts of a column's name: DuckDB resolves each by recursion
)

// explainWords matches EXPLAIN before a query. DuckDB returns the tree of the query, but not
// of its EXPLAIN.
var explainWords = regexp.MustCompile(`(?i)^\s*EXPLAIN\s+(ANALYZE\s+)?(\(\s*((ANALYZE|FORMAT\s+\w+)\s*,?\s*)+\)\s*)?`)

// analyzeWord matches the word of an EXPLAIN that also executes the query.
var analyzeWord = regexp.MustCompile(`(?i)\bANALYZE\b`)

// pivotWord matches a PIVOT. DuckDB may need to read its values first, with several
// statements.
var pivotWord = regexp.MustCompile(`(?i)\bPIVOT(_WIDER)?\b`)

// ErrNotReading returns an error that rejects a statement and lists the supported ones.
func ErrNotReading(what string) error {
	return &event.Fault{Message: what, Hint: "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are answered"}
}

// errNotListed returns the error for a call of a function that is not listed.
func (s source) errNotListed(call Node, listed map[string]bool) error {
	name := call.Text("function_name")
	q := &event.Fault{Message: "function " + name + " is not allowed", Hint: "perigee list functions lists the allowed functions"}
	names := slices.Sorted(maps.Keys(listed))
	if near := nearest.Name(strings.ToLower(name), names); near != "" {
		q.Hint = fmt.Sprintf("did you mean %s? %s", near, q.Hint)
	}
	q.Line, q.Column = s.place(call)
	return q
}

// A Runner runs the package's own SQL on DuckDB, which contains the parser.
type Runner interface {
	Run(sql string, params ...protocol.Param) ([][]any, error)
}

// A Statement is a parsed statement that only reads.
type Statement struct {
	Tree   map[string]any
	Tables []string // lower-case names of the tables that it reads, including those of WITH and perigee.NAME
	system bool     // it reads the catalog
	rows   []string // those of Tables that it does not only describe or plan

	Explained bool // EXPLAIN, with or without execution
	source    source
}

// Parse parses sql. It returns an error unless sql is one statement that only reads. It
// returns nil if sql is not valid SQL; DuckDB then reports a better error.
func Parse(c Runner, sql string) (*Statement, error) {
	if len(sql) > sqlMax {
		return nil, &event.Fault{Message: fmt.Sprintf("the query has %d bytes; the limit is %d", len(sql), sqlMax), Hint: "join with a table instead of listing values"}
	}
	plain := explainWords.ReplaceAllString(sql, "")
	found, err := c.Run(`SELECT CAST(json_serialize_sql(CAST(? AS VARCHAR)) AS VARCHAR)`, protocol.Param{Value: plain})
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
		return nil, &event.Fault{Message: "the query is nested too deeply", Hint: "split it into WITH parts"}
	}
	switch {
	case tree.Error && tree.ErrorType == "parser":
		return nil, nil
	case tree.Error && pivotWord.MatchString(plain):
		return nil, &event.Fault{Message: "PIVOT must list its values", Hint: "write PIVOT events ON event IN ('login', 'logout') USING count(*)"}
	case tree.Error:
		return nil, ErrNotReading("only reading statements are allowed")
	case len(tree.Statements) == 0:
		return nil, ErrNotReading("the query is empty")
	case len(tree.Statements) > 1:
		return nil, &event.Fault{Message: fmt.Sprintf("%d statements at once", len(tree.Statements)), Hint: "send one statement"}
	}
	from := source{sql: sql, prefix: len(sql) - len(plain)}
	if err := from.checkStatement(tree.Statements[0]); err != nil {
		return nil, err
	}
	s := &Statement{Tree: tree.Statements[0], Explained: plain != sql, source: from}
	return s, s.checkTables(s.Tree, !s.Explained || analyzeWord.MatchString(sql[:from.prefix]))
}

// SystemSchema is the schema of the external tables. A name without a schema refers first to
// a table of the store, then to a table of this schema.
const SystemSchema = "perigee"

// schemas are the schemas that a query may name.
var schemas = []string{"", "main", "temp", SystemSchema, "information_schema", "pg_catalog"}

// catalogs are the catalogs that a query may name.
var catalogs = []string{"", "events", "temp", "system"}

// checkTables collects the tables that a statement reads. It rejects names with a dot, a
// slash or a star, which DuckDB would take for files. rows is not set below a DESCRIBE
// and an EXPLAIN that does not execute.
func (s *Statement) checkTables(node any, rows bool) error {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			if err := s.checkTables(child, rows); err != nil {
				return err
			}
		}
	case map[string]any:
		n := Node(node)
		if n["type"] == "TABLE_FUNCTION" || n["type"] == "SHOW_REF" {
			s.system = true
		}
		rows = rows && !(n["type"] == "SHOW_REF" && n["show_type"] != "SUMMARY")
		if name := n.Text("table_name"); n["type"] == "BASE_TABLE" || n["type"] == "SHOW_REF" && name != "" {
			if err := s.addTable(n, strings.Trim(name, `"`)); err != nil {
				return err
			}
			if rows {
				s.rows = append(s.rows, s.Tables[len(s.Tables)-1])
			}
		}
		for _, child := range node {
			if err := s.checkTables(child, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Statement) addTable(n Node, name string) error {
	schema, catalog := strings.ToLower(n.Text("schema_name")), strings.ToLower(n.Text("catalog_name"))
	// The first part of a two-part name may be a catalog.
	if !slices.Contains(schemas, schema) && !(catalog == "" && slices.Contains(catalogs, schema)) || !slices.Contains(catalogs, catalog) || strings.ContainsAny(name, "./\\*?:[") {
		return &event.Fault{Message: "Table with name " + name + " does not exist!", Hint: "queries read the tables that SHOW TABLES lists, and no files"}
	}
	if schema == SystemSchema { // a table of the store may have the name without the schema
		name = SystemSchema + "." + name
		n["table_name"] = name
	}
	s.system = s.system || schema == "information_schema" || schema == "pg_catalog" || strings.HasPrefix(strings.ToLower(name), "duckdb_")
	s.Tables = append(s.Tables, strings.ToLower(name))
	return nil
}

// Reads reports whether the statement may read a table.
func (s *Statement) Reads(table string) bool {
	return s.system || slices.Contains(s.Tables, strings.ToLower(table))
}

// ReadsRows reports whether the statement may read rows of a table, and not only its columns.
func (s *Statement) ReadsRows(table string) bool {
	return slices.Contains(s.rows, strings.ToLower(table))
}

// HasCTE reports whether a WITH of the statement defines that name.
func (s *Statement) HasCTE(name string) bool {
	found := false
	ForEachObject(s.Tree, func(n Node) {
		for _, part := range n.Child("cte_map").List("map") {
			found = found || strings.EqualFold(part.Text("key"), name)
		}
	})
	return found
}

// ReadsUnknown reports whether the statement may read a table that is neither in m nor in
// external. DuckDB then needs all tables to suggest a name.
func (s *Statement) ReadsUnknown(m *manifest.Manifest, external []protocol.ExternalTable) bool {
	return slices.ContainsFunc(s.Tables, func(name string) bool {
		return m.Table(name) == nil && !slices.ContainsFunc(external, func(e protocol.ExternalTable) bool {
			return strings.EqualFold(strings.TrimPrefix(name, SystemSchema+"."), e.Name)
		})
	})
}

// A Node is an object in DuckDB's syntax tree.
type Node map[string]any

// Text returns a text member, or "".
func (n Node) Text(key string) string {
	text, _ := n[key].(string)
	return text
}

// Child returns an object member, or nil.
func (n Node) Child(key string) Node {
	child, _ := n[key].(map[string]any)
	return child
}

// List returns the objects in an array member.
func (n Node) List(key string) (all []Node) {
	items, _ := n[key].([]any)
	for _, item := range items {
		if node, ok := item.(map[string]any); ok {
			all = append(all, node)
		}
	}
	return all
}

// nodes returns all objects that are members of the node or elements of its array members.
func (n Node) nodes() (all []Node) {
	for key, member := range n {
		if child, ok := member.(map[string]any); ok {
			all = append(all, child)
		}
		all = append(all, n.List(key)...)
	}
	return all
}

// checkStatement returns an error unless all functions are listed, their arguments are
// bounded, and depth and growth are within limits.
func (s source) checkStatement(statement any) error {
	if err := s.checkNode(statement, 0); err != nil {
		return err
	}
	if growthOf(statement) > growthMax {
		return &event.Fault{
			Message: fmt.Sprintf("the query may multiply the size of its values by more than %d", growthMax),
			Hint:    "join fewer texts, lists and structs, or shorter ones",
		}
	}
	return nil
}

func (s source) checkNode(node any, depth int) error {
	if depth > treeMax {
		return &event.Fault{Message: "the query is nested too deeply", Hint: "split it into WITH parts"}
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

func (s source) checkObject(node Node, depth int) error {
	if names, _ := node["column_names"].([]any); len(names) > namesMax {
		return &event.Fault{Message: fmt.Sprintf("a column's name has %d parts; the limit is %d", len(names), namesMax)}
	}
	if size, ok := node["size"].(float64); ok && size > countMax {
		return &event.Fault{Message: fmt.Sprintf("an array type has %.0f elements; the limit is %d", size, countMax), Hint: "use a list: INTEGER[]"}
	}
	if name := node.Text("function_name"); name != "" {
		if !scalarFunctions[strings.ToLower(name)] {
			return s.errNotListed(node, scalarFunctions)
		}
		if err := checkCall(node); err != nil {
			return err
		}
	}
	if !slices.Contains(lambdaFunctions, strings.ToLower(node.Text("function_name"))) {
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

// checkTableFunction checks a table function. Its rows are not in memory all at once, so its
// arguments need no bounds.
func (s source) checkTableFunction(node Node, depth int) error {
	call := node.Child("function")
	if !tableFunctions[strings.ToLower(call.Text("function_name"))] {
		return s.errNotListed(call, tableFunctions)
	}
	for _, child := range []any{call["children"], node["sample"]} {
		if err := s.checkNode(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
