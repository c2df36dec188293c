package tuning

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/plot"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// A page is the data of the template. The report is in the page as JSON, too.
type page struct {
	*Report
	Name   string
	Style  template.CSS
	Cards  []Fact
	Plots  []plot.Plot
	Sheets []pageTable
	Facts  []Fact
	Data   template.JS
}

// A pageTable is a figureTable for the template.
type pageTable struct {
	Title string
	Head  []string
	Rows  []pageRow
	Words int
}

type pageRow struct {
	Cells []string
	First bool // of a group
}

// WritePage writes the report as a self-contained HTML page.
func (r *Report) WritePage(w io.Writer) error {
	shown, err := template.New("page").Funcs(template.FuncMap{
		"words": func(s pageTable, column int) bool { return column < s.Words },
		"date":  func(t time.Time) string { return t.Format("2 January 2006, 15:04 MST") },
		"about": func(d time.Duration) string { return Time(d) },
		"count": plural,
		"whole": func(n int) string { return Whole(float64(n)) },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return shown.Execute(w, page{
		Report: r, Name: filepath.Base(r.Script), Style: template.CSS(plot.Style + pageStyle), Data: template.JS(data),
		Cards: r.cards(), Plots: r.plots(), Sheets: r.pageTables(), Facts: r.facts(),
	})
}

func (r *Report) pageTables() (all []pageTable) {
	for _, s := range r.tables() {
		one := pageTable{Title: s.title, Head: s.head, Words: s.words}
		for i, cells := range s.rows {
			first := s.words > 0 && i > 0 && cells[1] != s.rows[i-1][1]
			one.Rows = append(one.Rows, pageRow{cells, first})
		}
		all = append(all, one)
	}
	return all
}

// cards returns the figures at the top of the page.
func (r *Report) cards() []Fact {
	best := fastest(r.byPool(r.poolNames()[0]))
	s := best.Summary
	cards := []Fact{
		{"events/s, best", Short(s.Rate.Median)},
		{fmt.Sprintf("p99 of batches of %d", best.Batch), Time(s.P99)},
		{fmt.Sprintf("memory added, %d VMs", s.VMs), Memory(s.Added)},
		{"allocations per event", formatDigits(s.AllocationsPerEvent)},
		{"events that fail", fmt.Sprintf("%s of %s", Whole(float64(r.Sample.Failed)), Whole(float64(r.Sample.Tried)))},
	}
	if c := r.Compilation; c != nil {
		cards = append(cards, Fact{"lines not compiled", fmt.Sprint(len(c.Lines(false)))})
	}
	return cards
}

func (r *Report) plots() []plot.Plot {
	rate := func(m Measurement) plot.Point {
		s := m.Summary.Rate
		return plot.Point{Y: s.Median, Least: s.Min, Most: s.Max}
	}
	took := func(y float64) string { return Time(time.Duration(y)) }
	added := func(m Measurement) plot.Point { return plot.Point{Y: float64(m.Summary.Added) / 1e6} }
	cpu := func(m Measurement) plot.Point { return plot.Point{Y: m.Summary.CPU} }
	short := func(unit string) func(float64) string {
		return func(y float64) string { return strings.TrimSpace(fmt.Sprintf("%.3g %s", y, unit)) }
	}
	batch := func(m Measurement) float64 { return float64(m.Batch) }
	across := func(m Measurement) float64 { return float64(m.Goroutines) }
	return []plot.Plot{
		{Title: "Events per second", Note: "higher is better; bars range from the slowest round to the fastest", Across: "goroutines",
			Format: thousands, Lines: r.poolLines(rate)},
		{Title: "Latency of a batch, 99th percentile", Note: "lower is better; includes the wait for a VM", Across: "goroutines", Log: true,
			Format: took, Lines: r.poolLines(func(m Measurement) plot.Point { return plot.Point{Y: float64(m.Summary.P99)} })},
		{Title: "Latency of a batch, percentiles", Note: "adaptive pool; includes the wait for a VM", Across: "goroutines", Log: true,
			Format: took, Lines: percentiles(r.byPool(r.poolNames()[0]), across)},
		{Title: "Memory added", Note: "peak of the process, without the script and the sample", Across: "goroutines", Format: short("MB"), Lines: r.poolLines(added)},
		{Title: "Cores in use", Note: "CPU time divided by wall-clock time", Across: "goroutines", Format: short(""), Lines: r.poolLines(cpu)},
		{Title: "Events per second, by cores", Note: "adaptive pool, " + plural(r.Plan.typicalGoroutines(), "goroutine"), Across: "cores", Format: thousands,
			Lines: []plot.Line{oneLine("adaptive", 0, r.Cores, func(m Measurement) float64 { return float64(m.Cores) }, rate)}},
		{Title: "Events per second, by batch size", Note: "adaptive pool, " + plural(r.Plan.typicalGoroutines(), "goroutine"), Across: "events in a batch", Format: thousands,
			Lines: []plot.Line{oneLine("adaptive", 0, r.Batches, batch, rate)}},
		{Title: "Latency of a batch, by batch size", Note: "adaptive pool, " + plural(r.Plan.typicalGoroutines(), "goroutine") + "; includes the wait for a VM", Across: "events in a batch",
			Log: true, Format: took, Lines: percentiles(r.Batches, batch)},
	}
}

// thousands formats a number for the ticks of an axis.
func thousands(y float64) string {
	switch {
	case y >= 1e6:
		return formatDigits(y/1e6) + " M"
	case y >= 1e3:
		return formatDigits(y/1e3) + " k"
	}
	return fmt.Sprintf("%.3g", y)
}

// poolLines returns a line for each pool, over the number of goroutines.
func (r *Report) poolLines(of func(Measurement) plot.Point) (all []plot.Line) {
	for i, name := range r.poolNames() {
		all = append(all, oneLine(name, i, r.byPool(name), func(m Measurement) float64 { return float64(m.Goroutines) }, of))
	}
	return all
}

func percentiles(all []Measurement, across func(Measurement) float64) []plot.Line {
	value := func(of func(Summary) time.Duration) func(Measurement) plot.Point {
		return func(m Measurement) plot.Point { return plot.Point{Y: float64(of(m.Summary))} }
	}
	return []plot.Line{
		oneLine("p50", 0, all, across, value(func(s Summary) time.Duration { return s.P50 })),
		oneLine("p90", 1, all, across, value(func(s Summary) time.Duration { return s.P90 })),
		oneLine("p99", 2, all, across, value(func(s Summary) time.Duration { return s.P99 })),
		oneLine("max", 3, all, across, value(func(s Summary) time.Duration { return s.Max })),
	}
}

func oneLine(name string, class int, all []Measurement, across func(Measurement) float64, of func(Measurement) plot.Point) plot.Line {
	l := plot.Line{Name: name, Class: class}
	for _, m := range all {
		pt := of(m)
		pt.X = across(m)
		l.Points = append(l.Points, pt)
	}
	return l
}
