package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/perigeedb/perigee/internal/rates"
	"github.com/perigeedb/perigee/internal/terminal"
	"github.com/perigeedb/perigee/pipeline"
)

var (
	titleStyle  = lipgloss.NewStyle().Bold(true)
	headStyle   = lipgloss.NewStyle().Foreground(lipgloss.BrightBlack)
	chosenStyle = lipgloss.NewStyle().Reverse(true)
	badStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warnStyle   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	goodStyle   = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

// sortKeys are the orders of the overview; the first one is that of equal rows.
var sortKeys = []sortKey{
	{"n", "name", func(a, b *rates.Pipeline) int { return cmp.Compare(a.Name(), b.Name()) }},
	{"i", "events read", func(a, b *rates.Pipeline) int { return cmp.Compare(b.In, a.In) }},
	{"o", "events delivered", func(a, b *rates.Pipeline) int { return cmp.Compare(b.Out, a.Out) }},
	{"l", "lag", func(a, b *rates.Pipeline) int { return cmp.Compare(b.Lag, a.Lag) }},
	{"t", "p99", func(a, b *rates.Pipeline) int { return cmp.Compare(b.P99, a.P99) }},
	{"s", "script", func(a, b *rates.Pipeline) int { return cmp.Compare(b.Script, a.Script) }},
	{"x", "dead letters", func(a, b *rates.Pipeline) int { return cmp.Compare(b.Status.Dead, a.Status.Dead) }},
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

// text returns the screen: a title, what is shown, and the keys.
func (m *model) text() string {
	var body []string
	keys := "enter details  p pause  r resume  d dead letters  sort: " + sortNames(m.sort) + "  q quit"
	switch m.screen {
	case overview:
		body = m.overview()
	case details:
		body, keys = m.details(), "esc back  p pause  r resume  d dead letters  q quit"
	case deadLetters:
		body, keys = m.letterLines(), "up, down  esc back  q quit"
	}
	title := titleStyle.Render("perigee top") + headStyle.Render("  "+time.Now().Format("15:04:05"))
	switch {
	case m.failure != nil:
		title += "  " + badStyle.Render(terminal.EscapeLine(m.failure.Error()))
	case m.message != "":
		title += "  " + warnStyle.Render(terminal.EscapeLine(m.message))
	}
	room := max(1, m.height-3)
	lines := append([]string{title, ""}, body[:min(len(body), room)]...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, headStyle.Render(keys))
	for i, line := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(max(1, m.width)).Render(line)
	}
	return strings.Join(lines, "\n")
}

func sortNames(chosen int) string {
	var names []string
	for i, s := range sortKeys {
		name := s.key + " " + s.title
		if i == chosen {
			name = "[" + name + "]"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// overviewFormat begins with the name and ends with the sparkline; both have what width is left.
const overviewFormat = "%-*s %-8s %6s %6s %6s %7s %7s %6s %6s %6s %6s  %s"

// overviewWidth is that of the columns between the name and the sparkline.
const overviewWidth = 76

func (m *model) overview() []string {
	if len(m.rows) == 0 {
		return []string{"the engine has no pipeline"}
	}
	left := m.width - overviewWidth
	name := max(8, min(left, 24))
	lines := []string{headStyle.Render(fmt.Sprintf(overviewFormat, name, "PIPELINE", "STATE", "IN/S", "OUT/S", "LAG", "P50", "P99", "SCRIPT", "COMMIT", "DEAD", "FAIL/S", "OUT/S"))}
	first, room := 0, max(1, m.height-5)
	for i := range m.rows {
		if m.rows[i].Name() == m.chosen && i >= room {
			first = i - room + 1
		}
	}
	for i := first; i < len(m.rows); i++ {
		r := &m.rows[i]
		line := fmt.Sprintf(overviewFormat, name, shorten(r.Name(), name), r.Status.State, count(r.In), count(r.Out), count(float64(r.Lag)),
			duration(r.P50), duration(r.P99), percent(r.Script), percent(r.Commit), count(float64(r.Status.Dead)), count(r.Errors),
			sparkline(r.Trend, max(0, min(left-name, rates.Samples))))
		switch {
		case r.Name() == m.chosen:
			line = chosenStyle.Render(line)
		case isWell(r):
		case r.Status.State == pipeline.Starting || r.Status.State == pipeline.Paused || r.Status.State == pipeline.Draining:
			line = warnStyle.Render(line)
		default:
			line = badStyle.Render(line)
		}
		lines = append(lines, line)
	}
	return lines
}

func (m *model) details() []string {
	r := m.find(m.chosen)
	if r == nil {
		return []string{"the pipeline has ended"}
	}
	state := goodStyle.Render(string(r.Status.State))
	if !isWell(r) {
		state = badStyle.Render(string(r.Status.State))
	}
	lines := []string{titleStyle.Render(terminal.EscapeLine(r.Name())) + "  " + state}
	if r.Status.Reason != "" {
		lines = append(lines, badStyle.Render("  "+terminal.EscapeLine(r.Status.Reason)))
	}
	if r.Status.WhyEmpty != "" {
		lines = append(lines, warnStyle.Render("  "+terminal.EscapeLine(r.Status.WhyEmpty)))
	}
	field := func(name, format string, args ...any) {
		lines = append(lines, headStyle.Render(fmt.Sprintf("  %-14s", name))+fmt.Sprintf(format, args...))
	}
	lines = append(lines, "")
	field("events", "%s/s in, %s/s out; %s read, %s delivered, %s dropped", count(r.In), count(r.Out), count(float64(r.Status.Read)), count(float64(r.Status.Events)), count(float64(r.Status.Dropped)))
	field("", "%s", sparkline(r.Trend, max(10, min(rates.Samples, m.width-18))))
	field("lag", "%s events in the source", count(float64(r.Status.Lag)))
	field("end to end", "p50 %s, p99 %s, from reading a batch until every sink has it", duration(r.P50), duration(r.P99))
	field("time", "script %s of one core, sinks %s of a lane, reading waits %s", percent(r.Script), percent(r.Commit), percent(r.Waits))
	field("dead letters", "%s since the start, %s/s, %s stored", count(float64(r.Status.Dead)), count(r.Dead), count(float64(r.Status.DeadLetters)))
	field("failures", "%s/s, %s since the start", count(r.Errors), count(float64(r.Failed)))
	partitions := fmt.Sprintf("%d open", r.Status.Open)
	if r.Status.Workers > 0 {
		partitions += fmt.Sprintf(", %d leased by this worker of %d, %d by others", r.Status.Held, r.Status.Workers, r.Status.Elsewhere)
	}
	field("partitions", "%s", partitions)
	if s := r.Status.Shadow; s != nil {
		field("shadow", "%s: %s of %s events differ", s.State, count(float64(s.Different)), count(float64(s.Events)))
	}
	const format = "  %-20s %9s %10s %8s %8s %7s %9s"
	lines = append(lines, "", headStyle.Render(fmt.Sprintf(format, "SINK", "ROWS/S", "LAG", "P50", "P99", "BUSY", "RETRIES")))
	for _, s := range r.Sinks {
		lines = append(lines, fmt.Sprintf(format, shorten(s.Status.Name, 20), count(s.Rate), count(float64(s.Status.Lag)), duration(s.P50), duration(s.P99), percent(s.Busy), count(float64(s.Status.Retries))))
	}
	return lines
}

func (m *model) letterLines() []string {
	l := &m.letters
	switch {
	case l.err != nil:
		return []string{badStyle.Render(terminal.EscapeLine(l.err.Error()))}
	case l.all == nil:
		return []string{"no dead letter of " + terminal.EscapeLine(l.pipeline)}
	}
	lines := []string{titleStyle.Render(fmt.Sprintf("%d of the dead letters of %s", len(l.all), terminal.EscapeLine(l.pipeline)))}
	for i := m.scroll; i < len(l.all); i++ {
		d := &l.all[i]
		lines = append(lines,
			fmt.Sprintf("%s  %-7s %s", d.ID, d.Stage, badStyle.Render(terminal.EscapeLine(d.Error))),
			"  "+terminal.EscapeLine(string(d.Event())))
	}
	return lines
}

// ---- values ----

// sparks are the heights of a sparkline.
var sparks = []rune(" ▁▂▃▄▅▆▇█")

// sparkline draws the last values, scaled by the largest.
func sparkline(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	line := []rune(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		height := 0
		if highest > 0 && v > 0 {
			height = max(1, int(v/highest*float64(len(sparks)-1)+0.5))
		}
		line = append(line, sparks[height])
	}
	return string(line)
}

// count prints a number in at most six characters.
func count(n float64) string {
	switch {
	case n < 10 && n != float64(int(n)):
		return fmt.Sprintf("%.1f", n)
	case n < 10_000:
		return fmt.Sprintf("%.0f", n)
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		n /= 1000
		switch {
		case n < 10:
			return fmt.Sprintf("%.2f%s", n, unit)
		case n < 100:
			return fmt.Sprintf("%.1f%s", n, unit)
		case n < 10_000:
			return fmt.Sprintf("%.0f%s", n, unit)
		}
	}
	return fmt.Sprintf("%.2g", n*1e12)
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// duration prints a time in three digits, and nothing for 0.
func duration(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func shorten(text string, width int) string {
	runes := []rune(terminal.EscapeLine(text))
	if len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return string(runes)
}
