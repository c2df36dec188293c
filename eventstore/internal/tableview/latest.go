//go:build linux && cgo

package tableview

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/logscan"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/statement"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
)

const (
	// latestMax is the maximum number of rows for a search from the newest on. The rows
	// are kept in memory until there are enough.
	latestMax = 10_000
	// latestRows is roughly the number of newest rows that the first search reads. Each
	// further search reads latestGrowth times as many.
	latestRows   = 20_000
	latestGrowth = 16
)

// LatestOf returns the number of rows that a statement needs from the end of a table, by
// event time, if it is SELECT … FROM table … ORDER BY time DESC … LIMIT n [OFFSET m]. For any
// other statement it returns 0.
func LatestOf(s *statement.Statement, t *manifest.Table) int64 {
	n := statement.Node(s.Tree).Child("node")
	from := n.Child("from_table")
	groups, _ := n["group_expressions"].([]any)
	renamed, _ := from["column_name_alias"].([]any)
	switch {
	case s.Explained, n["type"] != "SELECT_NODE", len(s.Tables) != 1, tablesql.TimeType(t) == 0, !strings.EqualFold(from.Text("table_name"), t.Name),
		len(n.Child("cte_map").List("map")) > 0, len(groups) > 0, len(renamed) > 0, n["having"] != nil, n["qualify"] != nil, n["sample"] != nil,
		from["type"] != "BASE_TABLE", from["sample"] != nil, from["at_clause"] != nil:
		return 0
	}
	modifiers := n.List("modifiers")
	if len(modifiers) != 2 || modifiers[0]["type"] != "ORDER_MODIFIER" || modifiers[1]["type"] != "LIMIT_MODIFIER" {
		return 0
	}
	orders := modifiers[0].List("orders")
	finder := &boundsFinder{table: t, time: t.Time}
	alias := cmp.Or(from.Text("alias"), t.Name)
	if len(orders) == 0 || orders[0]["type"] != "DESCENDING" || orders[0]["null_order"] == "NULLS FIRST" || !finder.isTime(finder.column(orders[0].Child("expression"), alias, true)) {
		return 0
	}
	if dependsOnOthers(n) || hidesTime(n, finder, alias) {
		return 0
	}
	return limitOf(modifiers[1])
}

// hidesTime reports whether the name of the time column has another meaning in ORDER BY.
func hidesTime(n statement.Node, f *boundsFinder, alias string) bool {
	return slices.ContainsFunc(n.List("select_list"), func(item statement.Node) bool {
		replaced, _ := item["replace_list"].([]any)
		renamed, _ := item["rename_list"].([]any)
		return f.isTime(item.Text("alias")) && !f.isTime(f.column(item, alias, true)) || len(replaced) > 0 || len(renamed) > 0
	})
}

// dependsOnOthers reports whether a result row depends on more than its own table row.
func dependsOnOthers(n statement.Node) bool {
	depends := false
	statement.ForEachObject(map[string]any(n), func(n statement.Node) {
		depends = depends || n["class"] == "SUBQUERY" || n["class"] == "WINDOW" || statement.IsAggregate(n.Text("function_name"))
	})
	return depends
}

// limitOf returns the number of rows that a LIMIT needs, or 0 if it is not constant or too
// large.
func limitOf(modifier statement.Node) int64 {
	limit, ok := statement.ConstantCount(modifier.Child("limit"))
	offset := 0
	if modifier["offset"] != nil && ok {
		offset, ok = statement.ConstantCount(modifier.Child("offset"))
	}
	if !ok || limit < 1 || limit > latestMax || offset < 0 || offset > latestMax-limit {
		return 0
	}
	return int64(limit)
}

// LatestSteps returns the selections to search, newest first, until one has enough rows. All
// but the last exclude rows before a time, and the parts that have only such rows.
func (s Selection) LatestSteps(wanted int64) (steps []Selection) {
	parts := s.parts()
	for rows := max(latestRows, latestGrowth*wanted); ; rows *= latestGrowth {
		after, ok := cutNewest(parts, rows)
		if !ok {
			return append(steps, s)
		}
		steps = append(steps, Selection{
			Frames: slices.DeleteFunc(slices.Clone(s.Frames), func(f *logscan.Frame) bool { return f.MaxTime < after }),
			Files:  slices.DeleteFunc(slices.Clone(s.Files), func(f *manifest.File) bool { return f.MaxTime < after }),
			after:  &after,
			Rows:   s.Rows,
			Equal:  s.Equal,
		})
	}
}

// A part is the event time range and number of rows of a frame or file.
type part struct{ min, max, rows int64 }

func (s Selection) parts() (parts []part) {
	for _, f := range s.Frames {
		parts = append(parts, part{f.MinTime, f.MaxTime, int64(f.Rows)})
	}
	for _, f := range s.Files {
		parts = append(parts, part{f.MinTime, f.MaxTime, f.Rows})
	}
	return parts
}

// cutNewest returns a time from which parts have roughly the given number of rows, assuming
// that each part spreads its rows evenly over time. ok is false if they have fewer rows.
func cutNewest(parts []part, rows int64) (after int64, ok bool) {
	low, high, total := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
	for _, p := range parts {
		low, high, total = min(low, p.min), max(high, p.max), total+p.rows
	}
	if total <= rows {
		return 0, false
	}
	after = low + int64(sort.Search(int(high-low), func(i int) bool { return rowsFrom(parts, low+int64(i)+1) < float64(rows) }))
	return after, after > low
}

// rowsFrom estimates the number of rows that parts have from a time on.
func rowsFrom(parts []part, after int64) (rows float64) {
	for _, p := range parts {
		if share := float64(p.max-after+1) / float64(p.max-p.min+1); share > 0 {
			rows += float64(p.rows) * min(share, 1)
		}
	}
	return rows
}
