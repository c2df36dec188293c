package suite

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/perigeedb/perigee/internal/terminal"
)

// A Writer writes reports in a format. Report is called for each file, Fault for one that has
// faults and did not run, and Close after the last.
type Writer interface {
	Report(r *Report) error
	Fault(file string, err error) error
	Close() error
}

// NewWriter returns a writer of the format junit, tap or json, or of text. colour is for text.
func NewWriter(w io.Writer, format string, colour bool) Writer {
	switch format {
	case "junit":
		return &junitWriter{w: w}
	case "tap":
		return &tapWriter{w: w}
	case "json":
		return &jsonWriter{w: w}
	}
	return &textWriter{w: w, colour: colour}
}

// differencesMax is the number of differences of a case that a text shows.
const differencesMax = 10

// A textWriter writes for people. It escapes what came out, so that the writer below need not,
// which would escape colours.
type textWriter struct {
	w      io.Writer
	colour bool
}

// Escape sequences of a terminal.
const (
	red   = "31"
	green = "32"
	bold  = "1"
)

func (t *textWriter) paint(code, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Report implements Writer.
func (t *textWriter) Report(r *Report) error {
	var b strings.Builder
	for i := range r.Results {
		c := &r.Results[i]
		if c.Failed() {
			fmt.Fprintf(&b, "%s %s\n", t.paint(bold+";"+red, "FAIL"), terminal.EscapeLine(fmt.Sprintf("%s:%d: %s", c.File, c.Line, c.Name)))
			t.differences(&b, c.Differences)
		}
		if c.Note != "" {
			fmt.Fprintf(&b, "note %s\n", terminal.EscapeLine(fmt.Sprintf("%s:%d: %s: %s", c.File, c.Line, c.Name, c.Note)))
		}
	}
	took := r.Took.Round(time.Millisecond)
	file := terminal.EscapeLine(r.File)
	if failed := r.Failed(); failed > 0 {
		fmt.Fprintf(&b, "%s %s: %d of %s failed (%v)\n", t.paint(bold+";"+red, "FAIL"), file, failed, count(len(r.Results), "case"), took)
	} else {
		fmt.Fprintf(&b, "%s   %s: %s (%v)\n", t.paint(green, "ok"), file, count(len(r.Results), "case"), took)
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// Fault implements Writer. The caller prints the fault.
func (t *textWriter) Fault(file string, _ error) error {
	_, err := fmt.Fprintf(t.w, "%s %s: did not run\n", t.paint(bold+";"+red, "FAIL"), terminal.EscapeLine(file))
	return err
}

// Close implements Writer.
func (*textWriter) Close() error { return nil }

func (t *textWriter) differences(b *strings.Builder, all []Difference) {
	for i, d := range all {
		if i == differencesMax {
			fmt.Fprintf(b, "  … and %s more\n", count(len(all)-i, "difference"))
			return
		}
		fmt.Fprintf(b, "  %s", terminal.EscapeLine(d.What))
		if d.Line > 0 {
			fmt.Fprintf(b, " (line %d)", d.Line)
		}
		b.WriteByte('\n')
		t.side(b, red, "-", d.Want)
		t.side(b, green, "+", d.Got)
	}
}

func (t *textWriter) side(b *strings.Builder, colour, sign, text string) {
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(b, "    %s\n", t.paint(colour, sign+" "+terminal.EscapeLine(line)))
	}
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// plainDifferences returns the differences of a case as text.
func plainDifferences(all []Difference) string {
	var b strings.Builder
	(&textWriter{}).differences(&b, all)
	return b.String()
}
