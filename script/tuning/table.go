package tuning

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A figureTable is a table of figures, independent of the output format.
type figureTable struct {
	title string
	head  []string
	rows  [][]string
	words int // number of leading columns that are words, not figures
}

// tables returns the tables of a report.
func (r *Report) tables() []figureTable {
	pools := figureTable{
		title: fmt.Sprintf("Pools: %s, batches of %d", plural(r.Plan.cores(), "core"), r.Plan.Batch),
		head:  append([]string{"pool", "goroutines"}, figureHeads...), words: 1,
	}
	for _, m := range r.Pools {
		pools.rows = append(pools.rows, append([]string{m.Pool, fmt.Sprint(m.Goroutines)}, figures(m)...))
	}
	cores := figureTable{
		title: fmt.Sprintf("Cores: adaptive pool, %s, batches of %d", plural(r.Plan.typicalGoroutines(), "goroutine"), r.Plan.Batch),
		head:  append([]string{"cores"}, figureHeads...),
	}
	for _, m := range r.Cores {
		cores.rows = append(cores.rows, append([]string{fmt.Sprint(m.Cores)}, figures(m)...))
	}
	batches := figureTable{
		title: fmt.Sprintf("Batches: adaptive pool, %s, %s", plural(r.Plan.typicalGoroutines(), "goroutine"), plural(r.Plan.cores(), "core")),
		head:  append([]string{"events in a batch"}, figureHeads...),
	}
	for _, m := range r.Batches {
		batches.rows = append(batches.rows, append([]string{fmt.Sprint(m.Batch)}, figures(m)...))
	}
	return []figureTable{pools, cores, batches}
}

var figureHeads = []string{"events/s", "spread", "p50", "p90", "p99", "max", "wait", "cores used", "memory", "added", "VMs", "B/event", "allocs/event"}

// figures returns the figures of a measurement, in the order of figureHeads.
func figures(m Measurement) []string {
	s := m.Summary
	return []string{
		Whole(s.Rate.Median), formatSpread(m), Time(s.P50), Time(s.P90), Time(s.P99), Time(s.Max), Time(s.WaitPerRun),
		fmt.Sprintf("%.2f", s.CPU), Memory(s.Peak), Memory(s.Added), fmt.Sprint(s.VMs), formatDigits(s.BytesPerEvent), fmt.Sprintf("%.3f", s.AllocationsPerEvent),
	}
}

// formatSpread formats the spread of the rounds, if there are several.
func formatSpread(m Measurement) string {
	if len(m.Rounds) < 2 {
		return "one round"
	}
	return fmt.Sprintf("%.0f %%", 100*m.Summary.Rate.RelativeRange())
}

func (s figureTable) writer() table.Writer {
	t := table.NewWriter()
	row := func(cells []string) (row table.Row) {
		for _, cell := range cells {
			row = append(row, cell)
		}
		return row
	}
	t.AppendHeader(row(s.head))
	var columns []table.ColumnConfig
	for i := s.words; i < len(s.head); i++ {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	for i, cells := range s.rows {
		if i > 0 && s.words > 0 && cells[1] != s.rows[i-1][1] {
			t.AppendSeparator()
		}
		t.AppendRow(row(cells))
	}
	return t
}

// uncoveredTable returns the table of lines that are not compiled.
func (c *Compilation) uncoveredTable() figureTable {
	s := figureTable{title: "Lines that LuaJIT could not compile", head: []string{"line", "what it does", "in LuaJIT's words", "times"}, words: 3}
	for _, u := range c.Lines(false) {
		s.rows = append(s.rows, []string{fmt.Sprintf("%s:%d", u.File, u.Line), u.Plain, u.Reason, fmt.Sprint(u.Count)})
	}
	return s
}

// Print writes tables for a terminal.
func (r *Report) Print(w io.Writer) error {
	for _, s := range r.tables() {
		t := s.writer()
		t.SetStyle(table.StyleLight)
		t.Style().Format.Header = text.FormatDefault
		if _, err := fmt.Fprintf(w, "%s\n%s\n\n", s.title, t.Render()); err != nil {
			return err
		}
	}
	if c := r.Compilation; c != nil && len(c.Lines(false)) > 0 {
		t := c.uncoveredTable().writer()
		t.SetStyle(table.StyleLight)
		t.Style().Format.Header = text.FormatDefault
		if _, err := fmt.Fprintf(w, "%s\n%s\n\n", c.uncoveredTable().title, t.Render()); err != nil {
			return err
		}
	}
	for _, words := range r.Advice.Words {
		if _, err := fmt.Fprintln(w, "-", words); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.Advice.YAML)
	return err
}

// WriteMarkdown writes the report without its plots.
func (r *Report) WriteMarkdown(w io.Writer) error {
	p := printer{w: w}
	p.line("# How %s runs\n", r.Script)
	p.line("`%s`, %s, in %v. Figures are medians of %d rounds of %v; the spread is the range of the rounds, as a share of the median. Times are the latency of a batch, including the wait for a VM.\n",
		r.Command, r.Began.Format("2006-01-02 15:04"), r.Took.Round(1e8), r.Rounds(), r.Slice.Round(1e6))
	for _, row := range r.facts() {
		p.line("- %s: %s", row.Name, row.Value)
	}
	p.line("\n## Advice\n")
	for _, words := range r.Advice.Words {
		p.line("- %s", words)
	}
	p.line("\n```yaml\n%s```", r.Advice.YAML)
	for _, s := range r.tables() {
		p.line("\n## %s\n\n%s", s.title, s.writer().RenderMarkdown())
	}
	if c := r.Compilation; c != nil && len(c.Lines(false)) > 0 {
		p.line("\n## %s\n\n%s", c.uncoveredTable().title, c.uncoveredTable().writer().RenderMarkdown())
	}
	return p.err
}

// A printer keeps its first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Rounds returns the largest number of rounds of a setup.
func (r *Report) Rounds() (n int) {
	for _, m := range r.Pools {
		n = max(n, len(m.Rounds))
	}
	return n
}

// A Fact is a line about the machine or the sample.
type Fact struct{ Name, Value string }

func (r *Report) facts() []Fact {
	s, m := r.Sample, r.Machine
	facts := []Fact{
		{"Processor", fmt.Sprintf("%s, %s", m.Processor, plural(m.Cores, "core"))},
		{"Memory", formatDigits(float64(m.Memory)/(1<<30)) + " GiB"},
		{"System", m.System},
	}
	for i, v := range m.Versions {
		name := "Versions"
		if i > 0 {
			name = "and"
		}
		facts = append(facts, Fact{name, v})
	}
	return append(facts,
		Fact{"Script", r.Version},
		Fact{"Events", fmt.Sprintf("%s from %s, %s each on average", Whole(float64(s.Events)), s.Name, formatDigits(float64(s.Bytes)/float64(s.Events))+" B")},
		Fact{"Results", fmt.Sprintf("of %s tried: %s rows, %s events dropped, %s failed", Whole(float64(s.Tried)), Whole(float64(s.Rows)), Whole(float64(s.Dropped)), Whole(float64(s.Failed)))},
	)
}
