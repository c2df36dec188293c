package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
)

// timeLayout is how times are printed; they are in UTC.
const timeLayout = "2006-01-02 15:04:05"

// printable escapes what could steer a terminal: control characters, except line breaks
// and tabs, and bytes that are not UTF-8.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, steersTerminal) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !steersTerminal(r):
			b.WriteString(text[:size])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

func steersTerminal(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}

// A terminalWriter escapes what could steer a terminal. Each Write must end at the end
// of a character.
type terminalWriter struct{ w io.Writer }

func (t terminalWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, printable(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// forTerminal returns w, or a writer that escapes for w if w is a terminal.
func forTerminal(w io.Writer) io.Writer {
	if isTerminal(w) {
		return terminalWriter{w}
	}
	return w
}

// firstLine returns the first line of a text, printable and cut to a number of
// characters.
func firstLine(text string, most int) string {
	line, _, cut := strings.Cut(text, "\n")
	line = strings.ReplaceAll(printable(line), "\t", " ")
	runes := []rune(line)
	if len(runes) > most {
		runes, cut = runes[:most-1], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}

// countOf is a number and what it counts.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// newTable returns a table with a header row.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row(header))
	return t
}

// printData says which data folder an answer is about.
func printData(w io.Writer, data string) { fmt.Fprintf(w, "data folder: %s\n", data) }
