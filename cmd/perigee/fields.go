package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/perigeedb/perigee/internal/inspect"
	"github.com/perigeedb/perigee/internal/terminal"
)

// Widths of a table of fields.
const (
	tableWidth    = 80 // where the width of the terminal is unknown, and at least
	fieldWidthMax = 40
	typeWidth     = len("timestamp")
	countsWidth   = 28 // of PRESENT, NULL and DISTINCT, with gaps
)

// widthOf returns the width of a terminal, or tableWidth for any other output.
func widthOf(w io.Writer) int {
	if escaping, ok := w.(*terminal.Writer); ok {
		if file, ok := escaping.Unwrap().(*os.File); ok {
			if width, _, err := term.GetSize(int(file.Fd())); err == nil {
				return max(width-1, tableWidth)
			}
		}
	}
	return tableWidth
}

// printReport prints a report for a terminal of 80 columns or more.
func printReport(w io.Writer, r *inspect.Report) error {
	p := fieldPrinter{events: r.Events - r.Rejected}
	width := widthOf(w)
	for _, f := range r.Fields {
		p.field = max(p.field, utf8.RuneCountInString(f.Path))
	}
	p.field = max(min(p.field, fieldWidthMax, width-tableWidth+16), len("FIELD"))
	p.values = width - p.field - typeWidth - countsWidth - 4
	p.printf("%s, %s", thousandsOf(r.Events, "event"), thousandsOf(uint64(len(r.Fields)), "field"))
	if len(r.Fields) > 0 {
		p.printf("")
		p.row("FIELD", "TYPE", "PRESENT", "NULL", "DISTINCT", "LEAST, GREATEST")
		for i := range r.Fields {
			p.printField(&r.Fields[i])
		}
		p.printf("")
	}
	p.printGuesses(r)
	p.printOddities(r)
	_, err := io.WriteString(w, p.out.String())
	return err
}

// A fieldPrinter lays out a report.
type fieldPrinter struct {
	out           strings.Builder
	events        uint64 // that are JSON objects
	field, values int    // widths of the first and the last column
}

func (p *fieldPrinter) printf(format string, args ...any) {
	p.out.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// row prints a line of the table. A path that is too long has a line of its own.
func (p *fieldPrinter) row(path, kind, present, null, distinct, value string) {
	if utf8.RuneCountInString(path) > p.field {
		p.printf("%s", path)
		path = ""
	}
	p.printf("%-*s  %-*s  %7s  %6s  %9s  %s", p.field, path, typeWidth, kind, present, null, distinct, firstLine(value, p.values))
}

// printField prints a field in two lines, the second with examples and the greatest value.
func (p *fieldPrinter) printField(f *inspect.Field) {
	values := uint64(0)
	for _, n := range f.Kinds {
		values += n
	}
	distinct := "-"
	if len(f.Examples) > 0 {
		distinct = approximately(f.Distinct)
	}
	path := terminal.EscapeLine(f.Path)
	p.row(path, f.Type, percent(f.Present, p.events), percent(f.Null, values), distinct, oneLine(f.Least))
	if len(f.Examples) == 0 {
		return
	}
	shown := make([]string, len(f.Examples))
	for i, example := range f.Examples {
		shown[i] = oneLine(example)
	}
	left := p.field + typeWidth + countsWidth
	p.printf("  %-*s  %s", left, firstLine(strings.Join(shown, ", "), left), firstLine(oneLine(f.Greatest), p.values))
}

func oneLine(text string) string { return terminal.EscapeLine(text) }

// unitTexts describe the units of times.
var unitTexts = map[string]string{
	"text": "text", "s": "seconds since 1970", "ms": "milliseconds since 1970", "us": "microseconds since 1970", "ns": "nanoseconds since 1970",
}

// printGuesses prints which fields look like times and names of events.
func (p *fieldPrinter) printGuesses(r *inspect.Report) {
	var times, names []string
	for _, f := range r.Fields {
		shown := oneLine(f.Path)
		if f.TimeUnit != "" {
			text := fmt.Sprintf("%s (%s)", shown, unitTexts[f.TimeUnit])
			times = prepend(times, text, f.Path == r.Time)
		}
		if f.EventName {
			names = prepend(names, shown, f.Path == r.EventName)
		}
	}
	if len(times) > 0 {
		p.printf("looks like the time: %s", strings.Join(times, ", "))
	}
	if len(names) > 0 {
		p.printf("looks like the event's name: %s", strings.Join(names, ", "))
	}
}

// prepend adds a text at the end, or first at the beginning.
func prepend(all []string, text string, first bool) []string {
	if first {
		return append([]string{text}, all...)
	}
	return append(all, text)
}

// printOddities prints what is odd, also events that are not JSON objects.
func (p *fieldPrinter) printOddities(r *inspect.Report) {
	for i := range r.Fields {
		for _, odd := range r.Fields[i].Odd {
			p.printf("odd: %s: %s", oneLine(r.Fields[i].Path), odd)
		}
	}
	if r.Omitted > 0 {
		p.printf("odd: %s values are in fields beyond the first 1,000, or in keys longer than 128 bytes", thousands(r.Omitted))
	}
	if r.Rejected > 0 {
		p.printf("odd: %s of %s events are not JSON objects; the first:", thousands(r.Rejected), thousands(r.Events))
	}
	for _, rejection := range r.Rejections {
		p.printf("  event %s: %s", thousands(rejection.Event), rejection.Reason)
		if rejection.Hint != "" {
			p.printf("    hint: %s", rejection.Hint)
		}
	}
}

// approximately writes a count that may be an estimate.
func approximately(n uint64) string {
	if n >= 1000 {
		return "~" + thousands(n)
	}
	return thousands(n)
}

// percent writes a share so that neither a few nor all but a few look like none or all.
func percent(n, total uint64) string {
	share := 100 * float64(n) / max(float64(total), 1)
	switch {
	case n == 0:
		return "-"
	case n >= total:
		return "100%"
	case share < 0.1:
		return "<0.1%"
	case share >= 99.9:
		return ">99.9%"
	case share < 1 || share >= 99:
		return fmt.Sprintf("%.1f%%", share)
	}
	return fmt.Sprintf("%.0f%%", share)
}
