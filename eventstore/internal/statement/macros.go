package statement

import (
	"strings"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

// A macro is a catalog.Macro with its definition.
type macro struct {
	call, doc string
	body      string // "TABLE …" for a table macro
}

// macros abbreviate common questions about events. A body must not use an argument twice if
// the argument may be a call of another macro: nested calls would multiply.
var macros = []macro{
	{"time_buckets(width, first, until)", "The table of the buckets of a width from `first` on, before `until`, in the column `bucket`: join it to fill gaps.",
		`TABLE SELECT range AS bucket FROM range(time_bucket(width, first), until, width)`},
	{"rate(n, width)", "`n` divided by the seconds in `width`.", `n / epoch(width)`},
	{"latest(value, ts)", "The value of the row with the greatest time, as an aggregate.", `arg_max(value, ts)`},
	{"earliest(value, ts)", "The value of the row with the least time, as an aggregate.", `arg_min(value, ts)`},
	{"p50(x)", "The median, as an aggregate; interpolated, like the other percentiles.", `quantile_cont(x, 0.5)`},
	{"p90(x)", "The 90th percentile.", `quantile_cont(x, 0.9)`},
	{"p95(x)", "The 95th percentile.", `quantile_cont(x, 0.95)`},
	{"p99(x)", "The 99th percentile.", `quantile_cont(x, 0.99)`},
	{"session_start(ts, key, gap)", "1 if the row is the first of its key or more than `gap` after the previous one, else 0. Its running sum numbers the sessions.",
		`CAST(coalesce(ts - lag(ts) OVER (PARTITION BY key ORDER BY ts) > gap, true) AS INTEGER)`},
	{"increase(value, key, ts)", "By how much a counter of a key grew since the previous row; a decrease means that the counter restarted at 0. The first row has NULL.",
		`CASE WHEN lag(value) OVER (PARTITION BY key ORDER BY ts) <= value THEN value - lag(value) OVER (PARTITION BY key ORDER BY ts)
			WHEN lag(value) OVER (PARTITION BY key ORDER BY ts) > value THEN value END`},
}

// Macros lists the macros that queries may call.
func Macros() (all []catalog.Macro) {
	for _, m := range macros {
		all = append(all, catalog.Macro{Call: m.call, Doc: m.doc})
	}
	return all
}

// name returns the name of the macro.
func (m *macro) name() string {
	name, _, _ := strings.Cut(m.call, "(")
	return name
}

// isTable reports whether the macro is a table macro.
func (m *macro) isTable() bool { return strings.HasPrefix(m.body, "TABLE ") }

// MacrosSQL is the SQL that creates the macros.
var MacrosSQL = func() string {
	var sql strings.Builder
	for _, m := range macros {
		sql.WriteString("CREATE MACRO events.main." + m.call + " AS " + m.body + ";\n")
	}
	return sql.String()
}()

// macroNames lists the names of the table macros, or of the scalar macros.
func macroNames(table bool) (names []string) {
	for _, m := range macros {
		if m.isTable() == table {
			names = append(names, m.name())
		}
	}
	return names
}
