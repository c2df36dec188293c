//go:build linux && cgo

package eventstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/event"
)

// TestBoundedArguments runs calls that would need gigabytes or crash the process, and similar
// harmless ones. Package statement tests all reasons.
func TestBoundedArguments(t *testing.T) {
	s := openStore(t, t.TempDir())
	appendDocs(t, take(t, openTable(t, s, TableConfig{})), 0, `{"id":1,"name":"x","tags":["a"],"l":[1,2]}`)
	for sql, want := range map[string]string{
		`SELECT json_structure('[]')`: "function json_structure is not allowed (perigee list functions",
		`SELECT repeat('x', 1001)`:    "repeat: argument 2 must be a constant of at most 1000",
		`SELECT ` + strings.Repeat("-", 1) + strings.Repeat("(1+", 300) + "1" + strings.Repeat(")", 300): "nested too deeply",
		`SELECT '` + strings.Repeat("x", 256<<10) + `'`:                                                  "the limit is 262144",
	} {
		rows, err := s.Query(context.Background(), sql)
		if err == nil {
			rows.Close()
		}
		if got := fmt.Sprintf("%v (%s)", err, event.HintOf(err)); !strings.Contains(got, want) {
			t.Errorf("%.80s: got error %s, want %q", sql, got, want)
		}
	}
	for _, sql := range []string{
		`SELECT repeat('=', 40) || name FROM events`, `SELECT lpad(name, 10, ' ') FROM events`, `SELECT count(*) FROM range(100000)`,
		`SELECT list_transform(range(10), lambda x: x + 1)`, `SELECT [x * 2 FOR x IN [1, 2] IF x > 1]`,
		`SELECT list_filter(['a', 'b'], lambda x: x = name) FROM events`, `SELECT string_agg(name, ', ') FROM events`, `SELECT string_agg(name), len(range(-500, 500)) FROM events`,
		`SELECT replace(name, 'a', 'b'), regexp_replace(name, '(a)', '<\1>', 'g') FROM events`, `SELECT format('{:>20} {}', name, id) FROM events`,
		`SELECT strftime(TIMESTAMP '2020-01-01', '%Y-%m')`, `SELECT name LIKE '%a%' AND name ILIKE 'a%b' FROM events`,
		`SELECT {'a': id, 'b': name, 'c': {'d': tags}} FROM events`, `SELECT a || b || c || d || e FROM (SELECT name a, name b, name c, name d, name e FROM events)`,
		`SELECT id, row_number() OVER (ORDER BY id), sum(id) OVER (), lag(name) OVER (ORDER BY id) FROM events`,
		`SELECT date_trunc('day', now()), extract(year FROM now()), now() AT TIME ZONE 'UTC', now() - INTERVAL 1 DAY`,
		`SELECT [1][1], [1, 2][1:2], name[1], CASE WHEN id IN (1, 2) THEN 1 END, coalesce(id, 0), id BETWEEN 1 AND 2, id::VARCHAR FROM events`,
		`SELECT quantile_cont(id, 0.5), median(id), approx_count_distinct(id), arg_max(name, id), histogram(id) FROM events`,
		`SELECT name, median(id) OVER (ORDER BY id), mode(id), approx_quantile(id, 0.5), approx_top_k(id, 1) FROM events GROUP BY name, id`,
		`SELECT '{"a":{"b":1}}'->'a'->>'b', json_extract_string('{"a":1}', '$.a'), to_json({'a': 1})`,
		`SELECT unnest([1, 2])`, `SELECT * FROM events, unnest([id]) t(tag)`, `SELECT COLUMNS(*) FROM events`, `SELECT * EXCLUDE (id) FROM events`,
		`SELECT name SIMILAR TO 'a.*', name ~ 'x', name ^@ 'x', position('x' IN name), substring(name, 1, 2), trim(name) FROM events`,
		`SELECT json_extract('{"a":[1]}', '$.a[*]'), json_extract('{"a":1}', ['$.a', '$.b']), '[1]'->0, '{"a":1}'->>'a'`,
		`UNPIVOT (SELECT 1 AS a, 2 AS b) ON COLUMNS(*) INTO NAME n VALUE v`,
		`SELECT ` + replaced(16, "'ab', 'ba'") + ` FROM events`,
	} {
		ask(t, s, sql)
	}
}

// replaced returns SQL that replaces a text in the column name a number of times.
func replaced(times int, texts string) string {
	return strings.Repeat("replace(", times) + "name" + strings.Repeat(", "+texts+")", times)
}

// TestListedFunctionsExist finds listed names that DuckDB no longer has.
func TestListedFunctionsExist(t *testing.T) {
	s := openStore(t, t.TempDir())
	known := strings.Fields(strings.ToLower(ask(t, s, `SELECT DISTINCT function_name FROM duckdb_functions()`)))
	have := map[string]bool{"unnest": true}
	for _, name := range known {
		have[strings.Trim(name, `"`)] = true
	}
	for _, g := range Functions() {
		for _, name := range g.Names {
			if !have[strings.ToLower(name)] {
				t.Errorf("DuckDB has no function %s", name)
			}
		}
	}
}
