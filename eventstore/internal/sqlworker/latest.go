//go:build linux && cgo

package sqlworker

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

const (
	// latestMax is up to how many rows are looked for from the newest on: they stand in
	// memory until it is known that they are enough.
	latestMax = 10_000
	// latestRows is how many of the newest rows are searched first, and latestGrowth by
	// how much more each further search reads.
	latestRows   = 150_000
	latestGrowth = 8
)

// latestOf returns how many rows a statement wants of the end of a table, by event time: it
// is SELECT … FROM table … ORDER BY time DESC … LIMIT n [OFFSET m]. 0 is any other statement.
func latestOf(s *statement, t *manifest.Table) int64 {
	n := syntaxNode(s.tree).child("node")
	from := n.child("from_table")
	groups, _ := n["group_expressions"].([]any)
	renamed, _ := from["column_name_alias"].([]any)
	switch {
	case s.explained, n["type"] != "SELECT_NODE", len(s.tables) != 1, timeSQL(t) == "", !strings.EqualFold(from.text("table_name"), t.Name),
		len(n.child("cte_map").list("map")) > 0, len(groups) > 0, len(renamed) > 0, n["having"] != nil, n["qualify"] != nil, n["sample"] != nil,
		from["type"] != "BASE_TABLE", from["sample"] != nil, from["at_clause"] != nil:
		return 0
	}
	modifiers := n.list("modifiers")
	if len(modifiers) != 2 || modifiers[0]["type"] != "ORDER_MODIFIER" || modifiers[1]["type"] != "LIMIT_MODIFIER" {
		return 0
	}
	orders := modifiers[0].list("orders")
	finder := &boundsFinder{table: t, time: t.Time}
	alias := cmp.Or(from.text("alias"), t.Name)
	if len(orders) == 0 || orders[0]["type"] != "DESCENDING" || orders[0]["null_order"] == "NULLS FIRST" || !finder.isTime(finder.column(orders[0].child("expression"), alias, true)) {
		return 0
	}
	if dependsOnOthers(n) || hidesTime(n, finder, alias) {
		return 0
	}
	return limitOf(modifiers[1])
}

// hidesTime reports whether the name of the time column means something else to ORDER BY.
func hidesTime(n syntaxNode, f *boundsFinder, alias string) bool {
	return slices.ContainsFunc(n.list("select_list"), func(item syntaxNode) bool {
		replaced, _ := item["replace_list"].([]any)
		renamed, _ := item["rename_list"].([]any)
		return f.isTime(item.text("alias")) && !f.isTime(f.column(item, alias, true)) || len(replaced) > 0 || len(renamed) > 0
	})
}

// dependsOnOthers reports whether a row of the result depends on more than its own row.
func dependsOnOthers(n syntaxNode) bool {
	depends := false
	forEachObject(map[string]any(n), func(n syntaxNode) {
		depends = depends || n["class"] == "SUBQUERY" || n["class"] == "WINDOW" || aggregateFunctions[strings.ToLower(n.text("function_name"))]
	})
	return depends
}

// limitOf returns how many rows a LIMIT needs, or 0 if they are not constant or too many.
func limitOf(modifier syntaxNode) int64 {
	limit, ok := constantCount(modifier.child("limit"))
	offset := 0
	if modifier["offset"] != nil && ok {
		offset, ok = constantCount(modifier.child("offset"))
	}
	if !ok || limit < 1 || limit > latestMax || offset < 0 || offset > latestMax-limit {
		return 0
	}
	return int64(limit)
}

// latestSteps returns the selections to search, newest first, until one has enough rows. Each
// leaves out the rows that the parts it does not have may be newer than; the last has all.
func (s selection) latestSteps() (steps []selection) {
	type part struct {
		frame *logFrame
		file  *manifest.File
		max   int64
		rows  int64
	}
	var parts []part
	for _, f := range s.frames {
		parts = append(parts, part{frame: f, max: f.maxTime, rows: int64(f.rows)})
	}
	for _, f := range s.files {
		parts = append(parts, part{file: f, max: f.MaxTime, rows: f.Rows})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.max, a.max) })
	var step selection
	rows, wanted := int64(0), int64(latestRows)
	for i, p := range parts {
		if rows >= wanted && p.max < parts[i-1].max && p.max < math.MaxInt64 {
			after := p.max + 1
			cut := selection{frames: slices.Clone(step.frames), files: slices.Clone(step.files), after: &after}
			steps = append(steps, cut)
			wanted = max(rows, wanted) * latestGrowth
		}
		rows += p.rows
		if p.frame != nil {
			step.frames = append(step.frames, p.frame)
		} else {
			step.files = append(step.files, p.file)
		}
	}
	return append(steps, s)
}

// readAll reads the rows of a result.
func (r *result) readAll() (all []arrow.RecordBatch, err error) {
	for {
		batch, err := r.next()
		if err != nil {
			release(all)
			return nil, err
		}
		if batch == nil {
			return all, nil
		}
		all = append(all, batch)
	}
}

func countRows(batches []arrow.RecordBatch) (rows int64) {
	for _, b := range batches {
		rows += b.NumRows()
	}
	return rows
}

func release(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}
