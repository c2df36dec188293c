package statement

import (
	"testing"

	"github.com/perigeedb/perigee/event"
)

// functionSamples call functions.
var functionSamples = []sample{
	{`SELECT lower(name), LOWER(name), "Lower"(name), count(*), now(), id + 1, name LIKE 'a%', [1][1] FROM events`, ""},
	{`SELECT row_number() OVER (ORDER BY id), lag(name) OVER (ORDER BY id), sum(id) OVER () FROM events`, ""},
	{`SELECT latest(name, time), p99(id) FROM events`, ""},
	{`SELECT * FROM range(100000), unnest([1]), duckdb_tables(), time_buckets(INTERVAL 1 MINUTE, now(), now())`, ""},

	{`SELECT json_structure('[]')`, "line 1, column 8: function json_structure is not allowed"},
	{"SELECT 1,\n  \"Json_Structure\"('[]')", "line 2, column 3: function json_structure is not allowed"},
	{`EXPLAIN SELECT system.main.json_structure('[]')`, "line 1, column 16: function json_structure is not allowed"},
	{`SELECT name.json_structure() FROM events`, "line 1, column 8: function json_structure is not allowed"},
	{`SELECT json_merge_patch('{}', '{}')`, "line 1, column 8: function json_merge_patch is not allowed"},
	{`SELECT list_aggregate([1], 'list')`, "line 1, column 8: function list_aggregate is not allowed"},
	{`SELECT getenv('HOME')`, "line 1, column 8: function getenv is not allowed"},
	{`SELECT write_log('x')`, "line 1, column 8: function write_log is not allowed"},
	{`SELECT sleep_ms(1) OVER () FROM events`, "line 1, column 8: function sleep_ms is not allowed"},
	{`SELECT 1 ORDER BY getenv('HOME')`, "line 1, column 19: function getenv is not allowed"},
	{`SELECT 1 GROUP BY ALL HAVING getenv('HOME') = ''`, "line 1, column 30: function getenv is not allowed"},
	{`SELECT (WITH x AS (SELECT lower(getenv('HOME')) AS h) SELECT h FROM x)`, "line 1, column 33: function getenv is not allowed"},
	{`SELECT list_transform([1], lambda x: getenv('HOME'))`, "line 1, column 38: function getenv is not allowed"},
	{`SELECT 1 FROM events JOIN events e ON getenv('HOME') = e.name`, "line 1, column 39: function getenv is not allowed"},

	{`SELECT * FROM read_csv('/etc/passwd')`, "line 1, column 15: function read_csv is not allowed"},
	{`SELECT * FROM repeat('x', 3)`, "line 1, column 15: function repeat is not allowed"},
	{`SELECT * FROM system.main.enable_logging()`, "line 1, column 15: function enable_logging is not allowed"},
	{`DESCRIBE FROM checkpoint()`, "line 1, column 15: function checkpoint is not allowed"},
	{`SELECT 1 WHERE EXISTS (FROM duckdb_logs())`, "line 1, column 29: function duckdb_logs is not allowed"},
	{`WITH x AS (FROM query('SELECT 1')) SELECT 1`, "line 1, column 17: function query is not allowed"},
	{`SELECT * FROM range(getenv('HOME'))`, "line 1, column 21: function getenv is not allowed"},
	{`SELECT unest([1])`, "line 1, column 8: function unest is not allowed"},
	{scriptPredicate, "line 1, column 28: function domain is not allowed"},
}

const scriptPredicate = `SELECT 1 FROM events WHERE Domain(name) = 'x'`

func TestListedFunctions(t *testing.T) {
	checkSamples(t, functionSamples)
	const listed = "perigee list functions lists the allowed functions"
	for sql, want := range map[string]string{`SELECT getenv('HOME')`: listed, `SELECT unest([1])`: "did you mean unnest? " + listed} {
		_, err := Parse(newRecordedParser(t), sql)
		if got := event.HintOf(err); got != want {
			t.Errorf("hint of %s: got %q, want %q", sql, got, want)
		}
	}
}

// TestAllow permits a script function, which may not be called by a predicate.
func TestAllow(t *testing.T) {
	Allow("Domain")
	t.Cleanup(func() {
		delete(scalarFunctions, "domain")
		delete(volatileFunctions, "domain")
	})
	if s := parse(t, newRecordedParser(t), scriptPredicate); s != nil {
		want := "the predicate calls domain, whose result changes"
		if err := s.CheckPredicate("events"); err == nil || err.Error() != want {
			t.Errorf("predicate with a script function: got error %v, want %q", err, want)
		}
	}
}
