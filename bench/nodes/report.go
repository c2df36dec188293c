package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
)

// promises says what a set has promised when it returns, because the two differ.
const promises = `A set on its own. M, without a journal: all processes see it at once; it survives the end of the process, and a crash of the
machine from the next flush of the cache on (each second), but a crash meanwhile can damage the database. Ours: its process sees it
at once, others after the flush interval; it survives the end of the process and a crash of the machine from then on, or from sync()
on; a crash never damages the store. Transactions: ours are synced by groups, M's (BATCH) are not.
`

func (b *bench) printTable(w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("ns per operation, median of %d rounds; speed: M's faster way = 1", b.rounds)
	t.AppendHeader(table.Row{"", "M", "M, transactions", "LuaJIT", "Lua 5.4", "LuaJIT, speed", "Lua 5.4, speed"})
	for _, j := range b.jobs() {
		r := b.results[j.title]
		m := b.results[cmp.Or(j.asM, j.title)]
		t.AppendRow(table.Row{j.title, tenths(r.rounds[plainM]), tenths(r.rounds[transactionsM]), tenths(r.rounds[fromLuaJIT]), tenths(r.rounds[fromLua54]),
			hundredths(ratio(m.faster(), r.rounds[fromLuaJIT])), hundredths(ratio(m.faster(), r.rounds[fromLua54]))})
	}
	t.Render()
	fmt.Fprint(w, promises)
}

func (b *bench) printFigures(w io.Writer) {
	vsM := func(name, title string, c contestant) {
		r := b.results[title]
		fmt.Fprintf(w, "figure %s %.2f\n", name, ratio(r.faster(), r.rounds[c]))
	}
	vsM("ints_luajit_vs_m", walkInts, fromLuaJIT)
	vsM("ints_lua54_vs_m", walkInts, fromLua54)
	vsM("strings_luajit_vs_m", walkStrings, fromLuaJIT)
	vsM("get_luajit_vs_m", getFew, fromLuaJIT)
	vsM("set_luajit_vs_m", setFew, fromLuaJIT)
	vsM("incr_luajit_vs_m", incrFew, fromLuaJIT)
	vsM("autocommit_set_vs_m", setCommitted, fromLuaJIT)
	vsM("bulk_load_vs_m", loadInts, fromLuaJIT)
	vsTable := func(name string, c contestant) {
		fmt.Fprintf(w, "figure %s %.2f\n", name, ratio(b.results[plainTable].rounds[c], b.results[dotPath].rounds[c]))
	}
	vsTable("dot_path_luajit_vs_plain_table", fromLuaJIT)
	vsTable("dot_path_lua54_vs_plain_table", fromLua54)
}

// ratio returns how many times faster ours is than theirs, as the median over the rounds, or
// 0 if one of them has no times.
func ratio(theirs, ours []float64) float64 {
	if len(theirs) != len(ours) {
		return 0
	}
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = theirs[i] / ours[i]
	}
	return rounds.Median(ratios)
}

func tenths(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", rounds.Median(values))
}

func hundredths(value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", value)
}
