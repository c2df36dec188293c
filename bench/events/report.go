package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
	"github.com/perigeedb/perigee/bench/stores"
)

// median returns the median of one part of the turns.
func median(turns []turn, part func(turn) float64) float64 {
	values := make([]float64, len(turns))
	for i, t := range turns {
		values[i] = part(t)
	}
	return rounds.Median(values)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func rate(t turn) float64          { return t.Rate() }
func ackMedian(t turn) float64     { return milliseconds(t.Ack.Median) }
func ackP99(t turn) float64        { return milliseconds(t.Ack.P99) }
func ackLongest(t turn) float64    { return milliseconds(t.Ack.Longest) }
func visibleMedian(t turn) float64 { return milliseconds(t.Visible.Median) }
func visibleP99(t turn) float64    { return milliseconds(t.Visible.P99) }
func catchUp(t turn) float64       { return t.catchUp.Seconds() }
func bytesPerRow(t turn) float64   { return t.bytes }
func memory(t turn) float64        { return t.memory }
func cpu(t turn) float64           { return t.cpu }

func whole(v float64) string  { return fmt.Sprintf("%.0f", v) }
func tenths(v float64) string { return fmt.Sprintf("%.1f", v) }

func newTable(w io.Writer, title string, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.SetTitle("%s", title)
	t.AppendHeader(header)
	return t
}

const legend = `Perigee takes JSON documents, QuestDB lines of InfluxDB's protocol over HTTP, the others typed columns. ms: of a commit.
us CPU: microseconds of CPU time per row of all processes. catch-up: seconds after the end until a query found all rows. B/row: on
disk when files no longer change. MB: peak of anonymous memory (RssAnon) of all processes. The program that writes counts in both.
`

func (b *bench) printTables(w io.Writer) {
	for _, batch := range batches {
		t := newTable(w, fmt.Sprintf("commits of %d rows at full speed, %v", batch, b.time),
			"", "rows/s", "least", "most", "p50 ms", "p99 ms", "longest ms", "us CPU", "catch-up", "B/row", "MB")
		for _, name := range contestants {
			turns := b.closed[closedKey{name, batch}]
			if len(turns) == 0 {
				continue
			}
			least, most := turns[0].Rate(), turns[0].Rate()
			for _, turn := range turns {
				least, most = min(least, turn.Rate()), max(most, turn.Rate())
			}
			t.AppendRow(table.Row{name, whole(median(turns, rate)), whole(least), whole(most), tenths(median(turns, ackMedian)), tenths(median(turns, ackP99)),
				tenths(median(turns, ackLongest)), tenths(median(turns, cpu)), tenths(median(turns, catchUp)), tenths(median(turns, bytesPerRow)), whole(median(turns, memory))})
		}
		t.Render()
	}
	t := newTable(w, fmt.Sprintf("%d rows/s in commits of %d rows, %v: acknowledged and visible", b.rate, smallBatch, b.openTime),
		"", "p50 ms", "p99 ms", "longest ms", "visible p50 ms", "visible p99 ms", "B/row", "MB")
	for _, name := range contestants {
		if turns := b.open[name]; len(turns) > 0 {
			t.AppendRow(table.Row{name, tenths(median(turns, ackMedian)), tenths(median(turns, ackP99)), tenths(median(turns, ackLongest)),
				tenths(median(turns, visibleMedian)), tenths(median(turns, visibleP99)), tenths(median(turns, bytesPerRow)), whole(median(turns, memory))})
		}
	}
	t.Render()
	fmt.Fprint(w, legend)
	if !b.selected(stores.Perigee) {
		return
	}
	fmt.Fprintf(w, "JSON through Lua with a computed column: %s events/s into the store, %s to standard output (/dev/null)\n",
		whole(rounds.Median(b.pipeline.store)), whole(rounds.Median(b.pipeline.stdout)))
}

// printFigures prints the figures whose stores had a turn. A ratio is the lesser of those at
// the two sizes of commits.
func (b *bench) printFigures(w io.Writer) {
	for _, figure := range []struct{ name, store string }{
		{"ingest_vs_duckdb", stores.DuckDB}, {"ingest_vs_questdb_sync", stores.QuestDBSync},
		{"ingest_vs_questdb_default", stores.QuestDB}, {"ingest_vs_raw_sync", stores.Raw},
	} {
		if ratio := least(b.ratio(figure.store, smallBatch), b.ratio(figure.store, largeBatch)); ratio > 0 {
			fmt.Fprintf(w, "figure %s %.2f\n", figure.name, ratio)
		}
	}
	for _, figure := range []struct {
		name string
		part func(turn) float64
	}{{"ack_p99_vs_raw", ackP99}, {"ack_longest_vs_raw", ackLongest}} {
		if ratio := ratioOf(b.open[stores.Perigee], b.open[stores.Raw], figure.part); ratio > 0 {
			fmt.Fprintf(w, "figure %s %.1f\n", figure.name, ratio)
		}
	}
	if !b.selected(stores.Perigee) {
		return
	}
	var ratios []float64
	for i, stored := range b.pipeline.store {
		ratios = append(ratios, stored/b.pipeline.stdout[i])
	}
	fmt.Fprintf(w, "figure ingest_json_lua_vs_stdout %.2f\n", rounds.Median(ratios))
	large, open := b.closed[closedKey{stores.Perigee, largeBatch}], b.open[stores.Perigee]
	for _, figure := range []struct {
		name  string
		value float64
	}{
		{"ingest_rows_per_s", median(large, rate)},
		{"ack_p50_ms", median(open, ackMedian)},
		{"ack_p99_ms", median(open, ackP99)},
		{"commit_stall_max_ms", longest(open)},
		{"visible_p50_ms", median(open, visibleMedian)},
		{"visible_p99_ms", median(open, visibleP99)},
		{"bytes_per_row", median(large, bytesPerRow)},
		{"ingest_memory_mb", median(large, memory)},
		{"idle_rss_mb", b.engine.idle},
		{"eval_start_ms", rounds.Median(b.engine.eval)},
	} {
		fmt.Fprintf(w, "figure %s %.1f\n", figure.name, figure.value)
	}
	fmt.Fprintf(w, "figure restart_s %.2f\n", rounds.Median(b.engine.restart))
}

// longest returns the longest acknowledgement of all turns.
func longest(turns []turn) (ms float64) {
	for _, t := range turns {
		ms = max(ms, ackLongest(t))
	}
	return ms
}

// ratio returns the median over the rounds of our rate divided by theirs, or 0.
func (b *bench) ratio(store string, batch int) float64 {
	return ratioOf(b.closed[closedKey{stores.Perigee, batch}], b.closed[closedKey{store, batch}], rate)
}

// ratioOf returns the median over the rounds of a part of our turn divided by the same of
// theirs, or 0.
func ratioOf(ours, theirs []turn, part func(turn) float64) float64 {
	var ratios []float64
	for round := range min(len(ours), len(theirs)) {
		ratios = append(ratios, part(ours[round])/part(theirs[round]))
	}
	return rounds.Median(ratios)
}
