package statement

import (
	"strings"
	"testing"
)

const (
	constantPath = ": the path must be constant, without **"
	multiplied   = "the query may multiply the size of its values by more than 50000"
	ownOnly      = ": the lambda may use only its own parameters"
	wildcards    = ": the pattern has more than 4 wildcards: use regexp_matches"
	widths       = ": widths and precisions must be constants below 1000"
	windowed     = "collects values, which a window would repeat in every row"
	seriesBound  = "a list needs constant whole numbers for arguments and may have 1000 elements; rows have no bound: FROM "
)

// boundSamples call functions with arguments that size the result.
var boundSamples = []sample{
	{`SELECT repeat('=', 1000) || name FROM events`, ""},
	{`SELECT lpad(name, 10, ' '), bar(1, 0, 1, 1000), max(id, 3), approx_top_k(id, 1000) FROM events`, ""},
	{`SELECT string_agg(name), string_agg(name, ', '), len(range(-500, 500)), generate_series(1, 9, 2) FROM events`, ""},
	{`SELECT replace(name, 'a', 'b'), regexp_replace(name, '(a)', '<\1>', 'g'), format('{:>20} {}', name, id) FROM events`, ""},
	{`SELECT name ILIKE '%a%b%c%', name GLOB 'a*b*c*d*', name LIKE '%a%b%c%d%e%' FROM events`, ""},
	{`SELECT list_filter(['a', 'b'], lambda x: x = name), list_transform([1], lambda x: list_transform([2], lambda y: y)) FROM events`, ""},
	{`SELECT sum(id) OVER (), median(id) OVER (ORDER BY id), list(id), count(DISTINCT id) FROM events`, ""},
	{`SELECT json_extract('{"a":[1]}', '$.a[*]'), json_extract('{"a":1}', ['$.a', '$.b']), '[1]'->0, '{"a":1}'->>'a'`, ""},

	{`SELECT repeat('x', 1001)`, "repeat: argument 2 must be a constant of at most 1000"},
	{`SELECT "Repeat"('x', id) FROM events`, "repeat: argument 2 must be a constant of at most 1000"},
	{`SELECT lpad('x', 1001, ' ')`, "lpad: argument 2 must be a constant of at most 1000"},
	{`SELECT rpad('x', 1001, ' ')`, "rpad: argument 2 must be a constant of at most 1000"},
	{`SELECT bar(1, 0, 1, 1001)`, "bar: argument 4 must be a constant of at most 1000"},
	{`SELECT to_base(1, 2, 1001)`, "to_base: argument 3 must be a constant of at most 1000"},
	{`SELECT max(id, 1001) FROM events`, "max: argument 2 must be a constant of at most 1000"},
	{`SELECT min(id, 1 + 1) FROM events`, "min: argument 2 must be a constant of at most 1000"},
	{`SELECT arg_max(name, id, 1001) FROM events`, "arg_max: argument 3 must be a constant of at most 1000"},

	{`SELECT printf(name, 1) FROM events`, "printf: argument 1 must be a constant of at most 200 bytes"},
	{`SELECT format('` + strings.Repeat("x", 201) + `')`, "format: argument 1 must be a constant of at most 200 bytes"},
	{`SELECT format('{:1000}', 1)`, "format" + widths},
	{`SELECT format('{:{}}', 1, 2)`, "format" + widths},
	{`SELECT printf('%*d', 1, 2)`, "printf" + widths},
	{`SELECT string_agg(name, name) FROM events`, "string_agg: argument 2 must be a constant of at most 100 bytes"},
	{`SELECT concat_ws(name, 'a', 'b') FROM events`, "concat_ws: argument 1 must be a constant of at most 100 bytes"},
	{`SELECT strftime(now(), name) FROM events`, "strftime: argument 2 must be a constant of at most 200 bytes"},
	{`SELECT replace(name, 'x', name) FROM events`, "replace: argument 3 must be a constant of at most 100 bytes"},
	{`SELECT regexp_replace(name, 'x', '` + strings.Repeat("x", 101) + `') FROM events`, "regexp_replace: argument 3 must be a constant of at most 100 bytes"},
	{`SELECT regexp_matches(name, '` + strings.Repeat("a", 1001) + `') FROM events`, "regexp_matches: the pattern has 1001 bytes; the limit is 1000"},
	{`SELECT name ILIKE '%a%b%c%d%' FROM events`, "~~*" + wildcards},
	{`SELECT name GLOB '*a*b*c*d*' FROM events`, "~~~" + wildcards},
	{`SELECT name LIKE '%a%b%c%d%' ESCAPE '!' FROM events`, "like_escape" + wildcards},

	{`SELECT len(range(1002))`, "range: " + seriesBound + "range(…)"},
	{`SELECT len(range(0, id)) FROM events`, "range: " + seriesBound + "range(…)"},
	{`SELECT len(range(-900, 500))`, "range: " + seriesBound + "range(…)"},
	{`SELECT len(range(0, 10, 0))`, "range: " + seriesBound + "range(…)"},
	{`SELECT len(generate_series(1, 9999, 2))`, "generate_series: " + seriesBound + "generate_series(…)"},

	{`SELECT list(id) OVER () FROM events`, "list: " + windowed},
	{`SELECT approx_quantile(id, 0.5) OVER (ORDER BY id) FROM events`, "approx_quantile: " + windowed},
	{`SELECT approx_top_k(id, 10) OVER (ORDER BY id) FROM events`, "approx_top_k: " + windowed},
	{`SELECT reservoir_quantile(id, 0.5) OVER () FROM events`, "reservoir_quantile: " + windowed},
	{`SELECT count(DISTINCT id) OVER (ORDER BY id) FROM events`, "count: DISTINCT " + windowed},

	{`SELECT list_transform(l, lambda x: l) FROM events`, "list_transform" + ownOnly},
	{`SELECT list_transform([1], lambda x: list_transform([2], lambda y: x + y))`, "list_transform" + ownOnly},
	{`SELECT list_transform([1], lambda x: list_transform(l, lambda y: x)) FROM events`, "list_transform" + ownOnly},

	{`SELECT json_extract('{"a":1}', '$.**.a')`, "json_extract" + constantPath},
	{`SELECT json_extract('{"a":1}', ['$.a', '$.**'])`, "json_extract" + constantPath},
	{`SELECT json_extract('{"a":1}', concat('$.*', '*.a'))`, "json_extract" + constantPath},
	{`SELECT json_extract('{"a":1}', p) FROM (SELECT '$.**' AS p)`, "json_extract" + constantPath},
	{`SELECT '{"a":1}'->>'$.**'`, "->>" + constantPath},
	{`SELECT '{"a":1}'->'$.**'`, "->" + constantPath},
}

// growthSamples nest calls, each of which multiplies the size of its arguments.
var growthSamples = []sample{
	{`SELECT repeat(repeat('x', 200), 200)`, ""},
	{`SELECT repeat('x', 300), repeat('y', 300)`, ""},
	{`SELECT list_transform(range(10), lambda x: x + 1)`, ""},
	{`SELECT a || b || c || d || e FROM (SELECT name a, name b, name c, name d, name e FROM events)`, ""},
	{`SELECT ` + replaced(16, "'ab', 'ba'") + ` FROM events`, ""},

	{`SELECT repeat(repeat('x', 300), 300)`, multiplied},
	{`WITH a AS (SELECT repeat('x', 300) s) SELECT repeat(s, 300) FROM a`, multiplied},
	{`WITH a AS (SELECT repeat('x', 300) s), b AS (SELECT repeat(s, 300) s FROM a) FROM b`, multiplied},
	{`SELECT repeat('x', 300) a, repeat(a, 300) b`, multiplied},
	{`SELECT repeat(s, 300) FROM (SELECT repeat('x', 300) s)`, multiplied},
	{`SELECT list_transform(range(300), lambda x: range(300))`, multiplied},
	{`SELECT repeat(name || name || name, 20000 / 1) FROM events`, "repeat: argument 2 must be a constant of at most 1000"},
	{`SELECT repeat(repeat(name || id || time, 300), 100) FROM events`, multiplied},
	{`SELECT repeat(repeat([a, b, c], 300), 100) FROM events`, multiplied},
	{`SELECT ` + replaced(16, "'ab', 'abc'") + ` FROM events`, multiplied},
}

// replaced returns SQL that replaces a text in the column name a number of times.
func replaced(times int, texts string) string {
	return strings.Repeat("replace(", times) + "name" + strings.Repeat(", "+texts+")", times)
}

func TestBoundedArguments(t *testing.T) { checkSamples(t, boundSamples) }

func TestBoundedGrowth(t *testing.T) { checkSamples(t, growthSamples) }
