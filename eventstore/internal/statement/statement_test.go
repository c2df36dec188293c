package statement

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// treesFile has DuckDB's answer to json_serialize_sql for each statement of samples.
// TestRecordedTrees compares it with DuckDB, and writes it with -update.
const treesFile = "testdata/trees.json"

// A recordedParser answers as DuckDB does, from treesFile.
type recordedParser map[string]json.RawMessage

func newRecordedParser(t *testing.T) (p recordedParser) {
	t.Helper()
	content, err := os.ReadFile(treesFile)
	if err == nil {
		err = json.Unmarshal(content, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p recordedParser) Run(_ string, params ...protocol.Param) ([][]any, error) {
	sql := params[0].Value.(string)
	tree, ok := p[sql]
	if !ok {
		panic(fmt.Sprintf("%s has no tree of %q: run go test -run TestRecordedTrees -update", treesFile, sql))
	}
	return [][]any{{string(tree)}}, nil
}

// parse returns a statement that Parse must allow, or nil.
func parse(t *testing.T, p recordedParser, sql string) *Statement {
	t.Helper()
	s, err := Parse(p, sql)
	if err != nil || s == nil {
		t.Errorf("%s: got %v and error %v, want a statement", sql, s, err)
		return nil
	}
	return s
}

// A sample is a statement with the error of Parse, "" if Parse allows the statement.
type sample struct{ sql, want string }

func checkSamples(t *testing.T, samples []sample) {
	t.Helper()
	parser := newRecordedParser(t)
	for _, s := range samples {
		got := ""
		if parsed, err := Parse(parser, s.sql); err != nil {
			got = err.Error()
		} else if parsed == nil {
			got = "invalid SQL"
		}
		if got != s.want {
			t.Errorf("%.200s\ngot error  %q\nwant error %q", s.sql, got, s.want)
		}
	}
}

// statementSamples differ in the kind of statement and in the tables that they read.
var statementSamples = []sample{
	{`SELECT 1`, ""},
	{`SELECT 1; -- done`, ""},
	{`VALUES (1), (2)`, ""},
	{`WITH x AS (SELECT 1) SELECT * FROM x`, ""},
	{`DESCRIBE events`, ""},
	{`SHOW TABLES`, ""},
	{`EXPLAIN (ANALYZE, FORMAT json) SELECT 1`, ""},
	{`PIVOT events ON name IN ('x') USING count(*)`, ""},
	{`SELECT * FROM main.events, events.events, events.main.events, perigee.lag, information_schema.tables, temp.x, system.pg_catalog.pg_type`, ""},

	{`SELEC 1`, "invalid SQL"},
	{``, "the query is empty"},
	{`;`, "the query is empty"},
	{`SELECT 1; DROP VIEW events`, "only reading statements are allowed"},
	{`SELECT 1; SELECT 2`, "2 statements at once"},
	{`PIVOT events ON name USING count(*)`, "PIVOT must list its values"},
	{`EXPLAIN ANALYZE DELETE FROM events`, "only reading statements are allowed"},
	{`SELECT '` + strings.Repeat("x", sqlMax) + `'`, "the query has 262153 bytes; the limit is 262144"},
	{`SELECT ` + strings.TrimSuffix(strings.Repeat("a.", namesMax+1), ".") + ` FROM events`, "a column's name has 17 parts; the limit is 16"},
	{`SELECT NULL::INTEGER[2000]`, "an array type has 2000 elements; the limit is 1000"},

	{`SELECT * FROM '/etc/passwd'`, "Table with name /etc/passwd does not exist!"},
	{`SELECT * FROM "x.csv"`, "Table with name x.csv does not exist!"},
	{`SELECT * FROM 'a*'`, "Table with name a* does not exist!"},
	{`SELECT * FROM 's3:x'`, "Table with name s3:x does not exist!"},
	{`SUMMARIZE '/etc/passwd'`, "Table with name /etc/passwd does not exist!"},
	{`SELECT 1 WHERE EXISTS (WITH x AS (FROM 'a/b') FROM x)`, "Table with name a/b does not exist!"},
	{`SELECT * FROM segment.s1`, "Table with name s1 does not exist!"},
	{`SELECT * FROM other.main.events`, "Table with name events does not exist!"},
}

// writingStatements do more than read.
var writingStatements = []string{
	`INSERT INTO events VALUES (1)`, `DELETE FROM events`, `UPDATE events SET id = 3`, `DROP VIEW events`, `CREATE TABLE mine (a INT)`, `CREATE MACRO f() AS 1`,
	`COPY (SELECT 1) TO '/tmp/x'`, `EXPORT DATABASE '/tmp/x'`, `ATTACH ':memory:' AS other`, `USE memory`, `INSTALL httpfs`, `LOAD httpfs`, `SET memory_limit = '1TB'`,
	`RESET memory_limit`, `PRAGMA enable_profiling`, `CALL enable_logging()`, `BEGIN`, `COMMIT`, `PREPARE x AS SELECT 1`, `EXECUTE x`, `CHECKPOINT`, `VACUUM`,
	`WITH x AS (SELECT 1) INSERT INTO events SELECT 1`, `MERGE INTO events USING (SELECT 1 AS id) x ON true WHEN MATCHED THEN DELETE`,
}

func init() {
	for _, sql := range writingStatements {
		statementSamples = append(statementSamples, sample{sql, "only reading statements are allowed"})
	}
}

// recordedSQL lists the statements of treesFile.
func recordedSQL() (all []string) {
	for _, samples := range [][]sample{statementSamples, functionSamples, boundSamples, growthSamples, predicateSamples, offsetSamples} {
		for _, s := range samples {
			all = append(all, s.sql)
		}
	}
	for _, s := range tableSamples {
		all = append(all, s.sql)
	}
	for i, sql := range all {
		all[i] = explainWords.ReplaceAllString(sql, "")
	}
	all = slices.DeleteFunc(all, func(sql string) bool { return len(sql) > sqlMax })
	slices.Sort(all)
	return slices.Compact(all)
}

// TestReadingStatements allows statements that only read, from tables of the store.
func TestReadingStatements(t *testing.T) {
	checkSamples(t, statementSamples)
	hint := "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are answered"
	if _, err := Parse(newRecordedParser(t), `BEGIN`); event.HintOf(err) != hint {
		t.Errorf("hint of BEGIN: got %q, want %q", event.HintOf(err), hint)
	}
}

// tableSamples are statements that read the table wanted: whether they may read other tables too,
// and whether they read rows.
var tableSamples = []struct {
	sql          string
	others, rows bool
}{
	{"SELECT a FROM wanted", false, true},
	{"FROM Wanted w WHERE EXISTS (FROM wanted)", false, true},
	{"FROM wanted, range(3)", true, true},
	{"FROM wanted, duckdb_tables", true, true},
	{"FROM wanted, information_schema.tables", true, true},
	{"SUMMARIZE wanted", true, true},
	{"DESCRIBE wanted", true, false},
	{"EXPLAIN FROM wanted", false, false},
	{"explain\n(format json) FROM wanted", false, false},
	{"EXPLAIN ANALYZE FROM wanted", false, true},
	{"explain (analyze) FROM wanted", false, true},
	{"EXPLAIN (FORMAT json, ANALYZE) FROM wanted", false, true},
	{"WITH Part AS (FROM wanted) FROM part", false, true},
}

// TestTablesOfStatements checks that a statement reads the tables that it names, and every table
// if it lists the catalog. A statement that describes a table or shows its plan reads no rows.
func TestTablesOfStatements(t *testing.T) {
	parser := newRecordedParser(t)
	for _, test := range tableSamples {
		s := parse(t, parser, test.sql)
		if s == nil {
			continue
		}
		if !s.Reads("WANTED") {
			t.Errorf("%s: got that it does not read table wanted, want that it does", test.sql)
		}
		if got := s.Reads("other"); got != test.others {
			t.Errorf("%s reads other tables: got %v, want %v", test.sql, got, test.others)
		}
		if got := s.ReadsRows("WANTED"); got != test.rows {
			t.Errorf("%s reads rows: got %v, want %v", test.sql, got, test.rows)
		}
		if got, want := s.HasCTE("part"), strings.HasPrefix(test.sql, "WITH"); got != want {
			t.Errorf("%s defines part: got %v, want %v", test.sql, got, want)
		}
	}
}

// TestReadsUnknown finds statements with tables that are neither of the store nor external.
func TestReadsUnknown(t *testing.T) {
	m := &manifest.Manifest{Tables: []*manifest.Table{{Name: "Wanted"}}}
	external := []protocol.ExternalTable{{Name: "lag"}}
	parser := newRecordedParser(t)
	for sql, want := range map[string]bool{
		"SELECT a FROM wanted": false, "DESCRIBE events": true,
		"SELECT * FROM main.events, events.events, events.main.events, perigee.lag, information_schema.tables, temp.x, system.pg_catalog.pg_type": true,
	} {
		if s := parse(t, parser, sql); s != nil && s.ReadsUnknown(m, external) != want {
			t.Errorf("%s reads unknown tables: got %v, want %v", sql, !want, want)
		}
	}
}

// TestDepthIsBounded checks that every construct around a list counts as one level of the syntax
// tree.
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
			t.Errorf("%s around %d levels: got error %v, want none", name, treeMax, err)
		}
		want := "the query is nested too deeply"
		if err := (source{}).checkNode(wrap([]any{list}), 0); err == nil || err.Error() != want {
			t.Errorf("%s around %d levels: got error %v, want %q", name, treeMax+1, err, want)
		}
	}
}
