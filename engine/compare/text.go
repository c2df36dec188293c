package compare

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/terminal"
)

// Widths of a text, which has 80 columns.
const (
	width      = 80
	eventWidth = 11
	sideWidth  = (width - 2 - eventWidth - 2) / 2 // of each version, beside the other
	labelWidth = 14
	figure     = 16 // width of a figure of one version
)

// leastSeconds is the time of a run below which start and chance decide.
const leastSeconds = 0.1

// A textWriter lays out a report for people. It escapes all text of events, so that the writer
// below need not, which would escape colours.
type textWriter struct {
	b      strings.Builder
	colour bool
}

// Escape sequences of a terminal.
const (
	red   = "31"
	green = "32"
	bold  = "1"
	faint = "2"
)

// WriteText writes the report in 80 columns, with colours for a terminal.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	t := &textWriter{colour: colour}
	t.line(bold, r.summary())
	for i := range r.Groups {
		t.group(&r.Groups[i])
	}
	if r.Omitted > 0 {
		t.line("", "")
		t.line("", fmt.Sprintf("differences of further kinds: %s", count(r.Omitted, "event")))
	}
	t.line("", "")
	t.versions(&r.Versions)
	_, err := io.WriteString(w, t.b.String())
	return err
}

// summary says how many events differ.
func (r *Report) summary() string {
	switch {
	case r.Different == 0:
		return count(r.Events, "event") + ", no difference"
	case r.Different == 1:
		return count(r.Events, "event") + ", 1 differs"
	}
	return fmt.Sprintf("%s, %s differ (%s)", count(r.Events, "event"), thousands(r.Different), percent(r.Different, r.Events))
}

// line writes a line in a colour, without spaces at its end.
func (t *textWriter) line(colour, text string) {
	text = strings.TrimRight(text, " ")
	if t.colour && colour != "" && text != "" {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	t.b.WriteString(text + "\n")
}

func (t *textWriter) group(g *Group) {
	t.line("", "")
	tail := ": " + count(g.Events, "event")
	t.line(bold, fit(terminal.EscapeLine(g.Title()), width-utf8.RuneCountInString(tail))+tail)
	t.line(faint, t.sides("event", "old", "new", false))
	for _, e := range g.Examples {
		before, after := focus(terminal.EscapeLine(e.Old), terminal.EscapeLine(e.New))
		t.line("", t.sides(thousands(e.Event), before, after, t.colour))
	}
}

// sides lays out two texts beside each other.
func (t *textWriter) sides(event, before, after string, colour bool) string {
	before, after = pad(fit(before, sideWidth), sideWidth), fit(after, sideWidth)
	if colour {
		before, after = "\x1b["+red+"m"+before+"\x1b[0m", "\x1b["+green+"m"+after+"\x1b[0m"
	}
	return fmt.Sprintf("  %-*s%s  %s", eventWidth, event, before, after)
}

// focus shortens what two long texts have in common at their beginning, so that the difference is
// visible.
func focus(a, b string) (string, string) {
	const context = 10
	if a == "" || b == "" || utf8.RuneCountInString(a) <= sideWidth && utf8.RuneCountInString(b) <= sideWidth {
		return a, b
	}
	x, y := []rune(a), []rune(b)
	same := 0
	for same < min(len(x), len(y)) && x[same] == y[same] {
		same++
	}
	if same <= sideWidth/2 {
		return a, b
	}
	return "…" + string(x[same-context:]), "…" + string(y[same-context:])
}

// fit cuts a text to a width.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// versions writes the figures of both versions.
func (t *textWriter) versions(both *[2]Version) {
	row := func(label, a, b, relative string) {
		t.line("", fmt.Sprintf("%-*s%*s%*s  %s", labelWidth, label, figure, a, figure, b, relative))
	}
	t.line(faint, fmt.Sprintf("%-*s%*s%*s", labelWidth, "", figure, "old", figure, "new"))
	for _, f := range figures(both) {
		row(f.Label, f.Old, f.New, f.Relative)
	}
	for i, side := range []string{"old", "new"} {
		t.line("", fmt.Sprintf("%s: %s", side, fit(terminal.EscapeLine(both[i].Name), width-len("old: "))))
	}
}

// A comparedFigure is a figure of both versions, as it is shown.
type comparedFigure struct{ Label, Old, New, Relative string }

func figures(both *[2]Version) []comparedFigure {
	a, b := &both[0], &both[1]
	return []comparedFigure{
		{"rows", thousands(a.Rows), thousands(b.Rows), ""},
		{"dropped", thousands(a.Dropped), thousands(b.Dropped), ""},
		{"dead letters", thousands(a.Dead), thousands(b.Dead), ""},
		{"time", seconds(a.Seconds), seconds(b.Seconds), relative(a.Seconds, b.Seconds, leastSeconds)},
		{"memory", mebibytes(a.Memory), mebibytes(b.Memory), relative(float64(a.Memory), float64(b.Memory), 0)},
	}
}

// relative returns how b compares with a, such as +12%, or "" if both are less than least, which
// says nothing, or equal.
func relative(a, b, least float64) string {
	if a <= 0 || b <= 0 || max(a, b) < least {
		return ""
	}
	text := fmt.Sprintf("%+.0f%%", 100*(b-a)/a)
	if text == "+0%" || text == "-0%" {
		return ""
	}
	return text
}

func seconds(s float64) string { return fmt.Sprintf("%.3f s", s) }

// mebibytes writes a number of bytes, or a dash for an unknown one.
func mebibytes(n int) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
}

// percent writes a share so that a few of many do not look like none.
func percent(n, total uint64) string {
	share := 100 * float64(n) / float64(max(total, 1))
	switch {
	case n == total:
		return "all"
	case share < 0.01:
		return "<0.01%"
	case share < 1:
		return fmt.Sprintf("%.2f%%", share)
	case share > 99.9:
		return ">99.9%"
	}
	return fmt.Sprintf("%.1f%%", share)
}

// count returns a number and a noun, in the plural unless the number is 1.
func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// thousands writes n as 1,234,567.
func thousands(n uint64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
