package main

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/bench/stores"
)

func (b *bench) printTables(w io.Writer) {
	b.printTimes(w, "right after ingest", b.fresh)
	b.printTimes(w, "after a restart", b.restart)
	if !b.selected(stores.Perigee) {
		return
	}
	fmt.Fprintf(w, "last 15 minutes: %.1f ms over %d days in %d files, %.1f ms over %d days in %d files\n",
		rounds.Median(b.files.few), fewDays, b.files.fewFiles, rounds.Median(b.files.many), manyDays, b.files.manyFiles)
}

func (b *bench) printTimes(w io.Writer, title string, measured times) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("%d rows, %s: ms, median of %d rounds; speed: DuckDB's file = 1", b.rows, title, b.rounds)
	header := table.Row{""}
	for _, name := range contestants {
		header = append(header, name)
	}
	t.AppendHeader(append(header, "speed"))
	for _, q := range queries(b.rows) {
		row := table.Row{q.name}
		for _, name := range contestants {
			row = append(row, fmt.Sprintf("%.1f", rounds.Median(measured[timeKey{q.name, name}])))
		}
		t.AppendRow(append(row, fmt.Sprintf("%.2f", measured.ratio(q.name, stores.DuckDB))))
	}
	t.Render()
}

// ratio returns how many times faster our store is than another, as the median over the
// rounds.
func (t times) ratio(query, store string) float64 {
	ours, theirs := t[timeKey{query, stores.Perigee}], t[timeKey{query, store}]
	var ratios []float64
	for round := range min(len(ours), len(theirs)) {
		ratios = append(ratios, theirs[round]/ours[round])
	}
	return rounds.Median(ratios)
}

// printFigures prints the figures. Each is the worse of the two times of asking.
func (b *bench) printFigures(w io.Writer) {
	figure := func(name string, value func(times) float64) {
		if worse := min(value(b.fresh), value(b.restart)); worse > 0 {
			fmt.Fprintf(w, "figure %s %.2f\n", name, worse)
		}
	}
	figure("q_geomean_vs_duckdb_file", func(t times) float64 { return b.mean(t, stores.DuckDB) })
	figure("q_worst_vs_duckdb_file", func(t times) float64 { return b.worst(t, stores.DuckDB) })
	figure("q_geomean_vs_questdb", func(t times) float64 { return b.mean(t, stores.QuestDB) })
	figure("q_geomean_vs_glob", func(t times) float64 { return b.mean(t, stores.Parquet) })
	figure("q_latest100_vs_glob", func(t times) float64 { return t.ratio(latestQuery, stores.Parquet) })
	figure("q_rare_vs_glob", func(t times) float64 { return t.ratio(rareQuery, stores.Parquet) })
	if !b.selected(stores.Perigee) {
		return
	}
	fmt.Fprintf(w, "figure q_2000_files_slowdown %.2f\n", rounds.Median(b.files.many)/rounds.Median(b.files.few))
	fmt.Fprintf(w, "figure ingest_and_queries_memory_mb %.0f\n", b.memory)
}

// mean returns the geometric mean of the ratios of the ten queries.
func (b *bench) mean(t times, store string) float64 {
	sum, n := 0.0, 0
	for _, q := range queries(b.rows) {
		if !q.extra {
			sum, n = sum+math.Log(t.ratio(q.name, store)), n+1
		}
	}
	return math.Exp(sum / float64(n))
}

// worst returns the least ratio of the ten queries.
func (b *bench) worst(t times, store string) float64 {
	least := math.Inf(1)
	for _, q := range queries(b.rows) {
		if !q.extra {
			least = min(least, t.ratio(q.name, store))
		}
	}
	return least
}
