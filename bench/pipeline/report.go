package main

import (
	"fmt"
	"io"
	"strings"

	pretty "github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/bench/rounds"
)

// A result holds the turns of one contestant.
type result struct {
	events uint64
	turns  []measurement
}

func (r *result) add(m measurement) { r.turns = append(r.turns, m) }

// median returns the median of one part of the measurements.
func (r *result) median(part func(measurement) float64) float64 {
	values := make([]float64, len(r.turns))
	for i, m := range r.turns {
		values[i] = part(m)
	}
	return rounds.Median(values)
}

func rate(m measurement) float64         { return m.rate }
func sourceTime(m measurement) float64   { return m.source }
func databaseTime(m measurement) float64 { return m.database }
func programTime(m measurement) float64  { return m.program }
func megabytes(m measurement) float64    { return m.resident }

// printTable prints a table of medians.
func (b *bench) printTable(w io.Writer) {
	t := pretty.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(pretty.StyleLight)
	t.AppendHeader(pretty.Row{"", "events", "turns", "events/s", "least", "most", "us source", "us database", "us program", "MB"})
	for _, name := range b.order {
		r := b.results[name]
		least, most := r.turns[0].rate, r.turns[0].rate
		for _, m := range r.turns {
			least, most = min(least, m.rate), max(most, m.rate)
		}
		t.AppendRow(pretty.Row{name, r.events, len(r.turns), formatWhole(r.median(rate)), formatWhole(least), formatWhole(most),
			formatTenths(r.median(sourceTime)), formatTenths(r.median(databaseTime)), formatTenths(r.median(programTime)), formatWhole(r.median(megabytes))})
	}
	t.Render()
	fmt.Fprintln(w, "us: microseconds of CPU time per event. MB: peak memory of the program, all its processes together.")
	if b.kafka == nil {
		fmt.Fprintln(w, "Without Kafka; make bench-pipeline KAFKA=1 includes it.")
	}
}

func formatWhole(v float64) string  { return fmt.Sprintf("%.0f", v) }
func formatTenths(v float64) string { return fmt.Sprintf("%.1f", v) }

// printFigures prints the figures whose contestants had a turn.
func (b *bench) printFigures(w io.Writer) {
	ratio := func(name, ours string, theirs ...string) {
		if value, ok := b.ratio(ours, theirs); ok {
			fmt.Fprintf(w, "figure %s %.2f\n", name, value)
		}
	}
	ratio("mysql_default_vs_article_flow", oursDefault, articleDefault)
	ratio("mysql_mode2_vs_article_flow", oursMode2, articleMode2)
	ratio("mysql_tls_vs_article_flow", oursTLS, articleMode2)
	loads := make([]string, len(connections))
	for i, n := range connections {
		loads[i] = loadName(n)
	}
	ratio("mysql_mode2_vs_load_data", oursMode2, loads...)
	if r := b.results[oursMode2]; r != nil {
		fmt.Fprintf(w, "figure own_cpu_us_per_event %.2f\nfigure pipeline_rss_mb %.0f\n", r.median(programTime), r.median(megabytes))
	}
	if value, ok := b.relativeMedian(programTime, oursMode2, articleMode2); ok {
		fmt.Fprintf(w, "figure own_cpu_vs_article_program %.2f\n", value)
	}
	ratio("postgres_vs_copy", oursPostgres, copyPostgres)
	ratio("streams_vs_list", oursStream, oursMode2)
	ratio("kafka_vs_list", oursKafka, oursMode2)
	if r := b.results[oursKafka]; r != nil {
		fmt.Fprintf(w, "figure kafka_events_per_s %.0f\n", r.median(rate))
	}
}

// ratio returns the median over the rounds of our rate divided by the best of theirs in the
// same round.
func (b *bench) ratio(ours string, theirs []string) (float64, bool) {
	us := b.results[ours]
	if us == nil {
		return 0, false
	}
	var ratios []float64
	for round, m := range us.turns {
		best := 0.0
		for _, name := range theirs {
			if r := b.results[name]; r != nil && round < len(r.turns) {
				best = max(best, r.turns[round].rate)
			}
		}
		if best > 0 {
			ratios = append(ratios, m.rate/best)
		}
	}
	return rounds.Median(ratios), len(ratios) > 0
}

// relativeMedian returns the median over the rounds of one part of our measurement divided
// by theirs in the same round. Unlike the part itself it depends little on the machine.
func (b *bench) relativeMedian(part func(measurement) float64, ours, theirs string) (float64, bool) {
	us, them := b.results[ours], b.results[theirs]
	if us == nil || them == nil {
		return 0, false
	}
	var shares []float64
	for round := range min(len(us.turns), len(them.turns)) {
		shares = append(shares, part(us.turns[round])/part(them.turns[round]))
	}
	return rounds.Median(shares), len(shares) > 0
}

func join(names []string) string { return strings.Join(names, ", ") }
