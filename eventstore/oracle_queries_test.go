//go:build linux && cgo

package eventstore

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// A generator generates queries with deterministic answers: rows are totally ordered, and
// sums are of integers.
type generator struct {
	r    *rand.Rand
	seed uint64
	more []oracleColumn // columns added so far
}

func (g *generator) columns() []oracleColumn {
	return append(oracleColumns[:len(oracleColumns):len(oracleColumns)], g.more...)
}

func (g *generator) one(of ...string) string { return pick(g.r, of) }

// kindOf returns a column's type as oracle.typeOf does.
func (g *generator) kindOf(c oracleColumn) event.Type { return (&oracle{seed: g.seed}).typeOf(c) }

// constant returns a value to compare a column with.
func (g *generator) constant(c oracleColumn) string {
	sql := pick(g.r, c.values).sql
	bare := strings.Trim(sql, "()")
	switch kind := g.kindOf(c); kind {
	case event.Timestamp, event.TimestampNS:
		return g.time(strings.Trim(sql, "'"), kind)
	case event.Int32, event.Int64:
		if c.name == "id" || c.name == "c" {
			bare = fmt.Sprint(g.r.IntN(400))
		}
		return g.one(bare, bare, bare, quoteSQL(bare), "("+bare+")::BIGINT", bare+".0", bare+".5", "("+bare+")::DOUBLE")
	case event.Decimal:
		return g.one(bare, bare, quoteSQL(bare), "("+bare+")::DECIMAL(38,10)")
	case event.Float64:
		return g.one(sql, sql, sql, "0", "-0.0", "0.0", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "'0'", "5.5", "5.5::DECIMAL(5,2)", "3")
	}
	return sql
}

// time formats a time in one of many ways.
func (g *generator) time(text string, kind event.Type) string {
	day, _, _ := strings.Cut(text, " ")
	ways := []string{
		quoteSQL(text), quoteSQL(text), quoteSQL(strings.Replace(text, " ", "T", 1) + "Z"), quoteSQL(day), "DATE " + quoteSQL(day), "TIMESTAMP " + quoteSQL(text),
		"TIMESTAMP " + quoteSQL(text) + " - INTERVAL " + fmt.Sprint(g.r.IntN(30)) + " HOUR", "DATE " + quoteSQL(day) + " + INTERVAL 1 DAY", "date_trunc('hour', TIMESTAMP " + quoteSQL(text) + ")",
		"TIMESTAMP " + quoteSQL(text+"+05:30"), "make_timestamp(1767637800000000)", "CAST(" + quoteSQL(text) + " AS TIMESTAMP)",
	}
	if kind == event.TimestampNS {
		ways = append(ways, quoteSQL(text+"+05:30"), quoteSQL(text+"-11:00"), quoteSQL(text)+"::TIMESTAMP_NS")
	} else {
		ways = append(ways, "TIMESTAMPTZ "+quoteSQL(text+"+05:30"), "to_timestamp(1767637800)")
	}
	return g.one(ways...)
}

// comparison returns a predicate on one or two columns, qualified by alias.
func (g *generator) comparison(alias string) string { return "(" + g.bareComparison(alias) + ")" }

func (g *generator) bareComparison(alias string) string {
	c := pick(g.r, g.columns())
	name, operator := alias+c.name, g.one("=", "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
	if c.kind == event.JSON {
		return g.json(name, operator)
	}
	if c.kind == event.Bool {
		return g.one(name, "NOT "+name, name+" IS NULL", name+" = true", name+" IS NOT TRUE")
	}
	special := map[event.Type][]string{
		event.String:  {name + " LIKE 'a%'", name + " ILIKE 'A%'", "starts_with(" + name + ", 'long')", "contains(" + name + ", chr(0))", "length(" + name + ") > 2", "upper(" + name + ") = 'A'", name + " = '' OR " + name + " = 'b'", name + " IN ('a', 'ab', 'nothing')", name + " > 'a' AND " + name + " < 'b'"},
		event.Float64: {"isnan(" + name + ")", name + " + 0 = 0", "abs(" + name + ") < 6", "-" + name + " = 0", name + " BETWEEN -1 AND 1", name + " = " + alias + "n", "isfinite(1 / " + name + ")"},
		event.Int32:   {name + " % 2 = 0", name + " = " + alias + "n", name + " < " + alias + "f", name + " IN (7, 42, 1000)", name + " = -1"},
		event.Int64:   {name + " IN (7, 42, 9007199254740993)", name + " > " + alias + "i", name + " = 9007199254740993", name + " = 9007199254740993.0"},
		event.Decimal: {name + " = 1.5", name + "::DOUBLE * 2 = 3", name + " = " + alias + "i", name + " > " + alias + "f", name + " IN (0, 7)"},
		event.Bytes:   {"octet_length(" + name + ") = 1", name + " IN ('\\x00'::BLOB, 'a'::BLOB)", "hex(" + name + ") = '00'", name + " > '\\x00'::BLOB AND " + name + " <= 'a'::BLOB"},
	}
	for _, kind := range []event.Type{event.Timestamp, event.TimestampNS} {
		special[kind] = []string{name + "::DATE = DATE '2026-01-05'", "year(" + name + ") = 2026", "date_trunc('day', " + name + ") = TIMESTAMP '2026-01-06'", name + " + INTERVAL 6 HOUR > TIMESTAMP '2026-01-06'", name + " > TIMESTAMP '2026-01-01' AND " + name + " < '2026-01-06'"}
	}
	if more := special[g.kindOf(c)]; len(more) > 0 && g.r.IntN(3) == 0 {
		return pick(g.r, more)
	}
	a, b := g.constant(c), g.constant(c)
	switch g.r.IntN(8) {
	case 0:
		return name + " BETWEEN " + a + " AND " + b
	case 1:
		return name + g.one(" IN (", " NOT IN (") + a + ", " + b + ")"
	case 2:
		return name + g.one(" IS NULL", " IS NOT NULL")
	case 3:
		return a + " " + operator + " " + name
	}
	return name + " " + operator + " " + a
}

func (g *generator) json(name, operator string) string {
	return g.one(name+"->>'a' = 'x'", name+"->>'$.b[1]' = '2'", name+" IS NULL", "json_type("+name+") = 'OBJECT'", name+"::VARCHAR "+operator+" '1'",
		"json_extract_string("+name+", 'a') IS NOT NULL", "("+name+"->'a') IS NOT NULL", "json_valid("+name+")", name+" = '1'::JSON")
}

// predicate combines comparisons.
func (g *generator) predicate(alias string) string {
	switch g.r.IntN(7) {
	case 0:
		return "(" + g.predicate(alias) + ") AND (" + g.predicate(alias) + ")"
	case 1:
		return "(" + g.predicate(alias) + ") OR (" + g.predicate(alias) + ")"
	case 2:
		return "NOT (" + g.predicate(alias) + ")"
	case 3:
		return g.comparison(alias) + " AND " + alias + "tm >= " + g.time("2026-01-05 18:30:00", g.kindOf(oracleColumns[8]))
	}
	return g.comparison(alias)
}

// aggregates do not depend on the order of rows.
var aggregates = []string{
	"count(*)", "count(f)", "count(DISTINCT s)", "sum(n::HUGEINT)", "sum(i)", "min(tm)", "max(tm)", "min(s)", "max(s)", "min(f)", "max(f)", "min(d)", "max(e)", "sum(d)", "min(x)", "max(x)",
	"bool_and(b)", "bool_or(b)", "count(*) FILTER (f = 0)", "arg_max(id, id)", "latest(s, id)", "earliest(x, id)", "p50(id)", "p95(i)", "string_agg(id::VARCHAR, ',' ORDER BY id)", "list(id ORDER BY id)::VARCHAR",
	"bit_xor(id)", "min(ns)", "max(us)", "count(j)", "max(c)", "sum(c)", "median(id)", "rate(count(*), INTERVAL 1 MINUTE)", "epoch_us(max(us)) - epoch_us(min(us))", "max(tm) - min(tm)",
}

func (g *generator) aggregates() string {
	var list []string
	for i := range 1 + g.r.IntN(4) {
		list = append(list, fmt.Sprintf("%s AS c%d", pick(g.r, aggregates), i+2))
	}
	return strings.Join(list, ", ")
}

// listed selects some or all columns.
func (g *generator) listed(alias string) string {
	list, n := []string{alias + "id AS c1"}, 1
	whole := g.r.IntN(4) == 0
	for _, c := range g.columns() {
		if whole || g.r.IntN(4) == 0 {
			n++
			list = append(list, fmt.Sprintf("%s%s AS c%d", alias, c.name, n))
		}
	}
	return strings.Join(list, ", ")
}

// query returns a query, and whether its groups may show either zero.
func (g *generator) query() (sql string, loose bool) {
	where := " WHERE " + g.predicate("")
	switch g.r.IntN(13) {
	case 0, 1:
		return "SELECT count(*) AS c1 FROM events" + where, true
	case 2:
		return "SELECT " + g.listed("") + " FROM events" + where + " ORDER BY id", false
	case 3:
		return "SELECT " + g.listed("") + " FROM events" + where + " ORDER BY tm DESC, id LIMIT " + g.one("1", "5", "20") + g.one("", " OFFSET 3"), false
	case 4:
		c := pick(g.r, g.columns())
		if c.kind == event.JSON {
			c = oracleColumns[0]
		}
		return "SELECT " + g.listed("") + " FROM events" + g.one("", where) + " ORDER BY " + c.name + g.one("", " DESC", " DESC NULLS FIRST", " NULLS FIRST") + ", id LIMIT " + g.one("3", "11"), false
	case 5:
		return "SELECT 1 AS c1, " + g.aggregates() + " FROM events" + where, true
	case 6:
		key := g.one("s", "b", "i", "x", "d", "f", "date_trunc('day', us)", "time_bucket(INTERVAL 6 HOUR, us)", "us::DATE", "id % 5")
		return "SELECT " + key + " AS c1, " + g.aggregates() + " FROM events" + where + " GROUP BY 1 " + g.one("", "HAVING count(*) > 2 ") + "ORDER BY 1", true
	case 7:
		join := g.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
		on := g.one("a.id % 40 = o.k", "a.s = o.v", "a.f = o.w", "a.i = o.k", "a.us::DATE = o.ts::DATE")
		return "SELECT count(*) AS c1, sum(a.id) AS c2, sum(o.k) AS c3, count(DISTINCT o.v) AS c4 FROM events a " + join + " other o ON " + on + " WHERE " + g.predicate("a.") + g.one("", " AND o.k < 20", " OR o.w = 0"), true
	case 8:
		return "SELECT count(*) AS c1, min(a.id) AS c2, max(b.id) AS c3 FROM events a JOIN events b ON a.id = b.id + 1 WHERE " + g.predicate("a.") + " AND " + g.comparison("b."), true
	case 9:
		return "SELECT " + g.listed("") + " FROM events WHERE " + g.one("i IN (SELECT k FROM other)", "s IN (SELECT v FROM other WHERE w = 0)", "f IN (SELECT w FROM other)", "EXISTS (SELECT 1 FROM other WHERE k = events.i)",
			"us > (SELECT min(us) FROM events"+where+")", "id NOT IN (SELECT k FROM other WHERE k IS NOT NULL)", "f = ANY (SELECT w FROM other)") + " ORDER BY id", false
	case 10:
		window := g.one("row_number() OVER (PARTITION BY i ORDER BY id)", "lag(id) OVER (ORDER BY id)", "sum(id) OVER (PARTITION BY s ORDER BY id)", "rank() OVER (PARTITION BY b ORDER BY d, id)",
			"session_start(make_timestamp(id * 3600000000), i, INTERVAL 1 DAY)", "count(*) OVER (PARTITION BY x)", "max(id) OVER (ORDER BY tm RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW)")
		return "SELECT id AS c1, " + window + " AS c2 FROM events" + where + " ORDER BY id", false
	case 11:
		return "WITH part AS (SELECT * FROM events" + where + ") SELECT b.bucket AS c1, count(p.id) AS c2, sum(p.id) AS c3 FROM time_buckets(INTERVAL 6 HOUR, TIMESTAMP '2026-01-04', TIMESTAMP '2026-01-07') b " +
			"LEFT JOIN part p ON time_bucket(INTERVAL 6 HOUR, p.us) = b.bucket GROUP BY 1 ORDER BY 1", true
	}
	return "SELECT k AS c1, v AS c2, ts AS c3, w AS c4 FROM other WHERE " + g.one("k IN (3, 4, 5, 6)", "v = 'a'", "w = 0", "ts > '2021-01-01'", "ts < TIMESTAMP '2020-01-15'", "w < 1 OR v > 'a'", "v = chr(0)") +
		g.one("", " OR k % 2 = 0") + " ORDER BY k", false
}

var oracleFormats = append([]Format{""}, Formats()...)

// ask runs the queries of one moment.
func (o *oracle) ask(moment string) {
	o.moment++
	g := &generator{r: rand.New(rand.NewPCG(o.seed, uint64(100+o.moment))), seed: o.seed}
	for _, name := range []string{"u", "v"} {
		switch o.plain.column("events", name) {
		case "BIGINT":
			g.more = append(g.more, oracleColumn{name: name, kind: event.Int64, values: oracleInts})
		case "DOUBLE":
			g.more = append(g.more, oracleColumn{name: name, kind: event.Float64, values: oracleFloats})
		case "JSON":
			g.more = append(g.more, oracleColumn{name: name, kind: event.JSON, values: oracleJSON})
		}
	}
	for i := range o.each {
		if i%6 == 5 {
			o.compareParts(g, moment)
			continue
		}
		sql, loose := g.query()
		o.compare(sql, oracleFormats[i%len(oracleFormats)], loose, moment)
	}
}

func (o *oracle) fail(sql, moment, what string) {
	if o.wrong++; o.wrong <= 10 {
		o.t.Errorf("PERIGEE_SEED=%d, %s: %s\n%.4000s", o.seed, moment, what, sql)
	}
}

// compare compares the store's answer with DuckDB's.
func (o *oracle) compare(sql string, format Format, loose bool, moment string) {
	want, refused := o.plain.asText(o.keepSign(sql))
	if refused != nil {
		o.odd++ // the store may skip the files that cause an error
		if os := refused.Error(); !strings.Contains(os, "Conversion Error") && !strings.Contains(os, "Out of Range") && !strings.Contains(os, "Cannot compare") {
			o.t.Logf("DuckDB refuses %.500s: %v", sql, refused)
		}
		return
	}
	o.queries++
	got, err := o.answerOf(sql, format)
	if err != nil {
		o.fail(sql, moment, fmt.Sprintf("format %q: %v", format, err))
	} else if what := got.differ(want, loose); what != "" {
		o.fail(sql, moment, fmt.Sprintf("format %q: %s", format, what))
	}
}

var sortColumn = regexp.MustCompile(` ORDER BY ([fuv])\b`)

// keepSign returns sql for the plain table. A sort of DuckDB returns 0.0 for a stored -0.0 if the
// column itself is the sort key, and -0.0 if the key is an expression of equal order.
func (o *oracle) keepSign(sql string) string {
	if m := sortColumn.FindStringSubmatch(sql); m != nil && (m[1] == "f" || o.plain.column("events", m[1]) == "DOUBLE") {
		return strings.Replace(sql, m[0], m[0]+" + 0", 1)
	}
	return sql
}

// compareParts compares a predicate with an equivalent one that is wrapped to prevent
// skipping, and checks that the rows for true, false and null add up.
func (o *oracle) compareParts(g *generator, moment string) {
	p := g.predicate("")
	if _, refused := o.plain.query("SELECT count(" + p + ") FROM events"); refused != nil {
		o.odd++
		return
	}
	count := func(where string) (n int64) {
		o.queries++
		a, err := o.answerOf("SELECT count(*) AS c1 FROM events WHERE "+where, "")
		if err != nil {
			o.fail(where, moment, err.Error())
			return 0
		}
		return a.rows[0][0].(int64)
	}
	bare := count(p)
	if wrapped := count("CASE WHEN (" + p + ") THEN true ELSE false END"); bare != wrapped {
		o.fail(p, moment, fmt.Sprintf("%d rows, and %d where nothing is left out", bare, wrapped))
	}
	if parts, all := bare+count("NOT ("+p+")")+count("("+p+") IS NULL"), count("true"); parts != all {
		o.fail(p, moment, fmt.Sprintf("the parts have %d rows of %d", parts, all))
	}
}
