package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/perigeedb/perigee/internal/terminal"
)

// timeLayout is the format of printed times, in UTC.
const timeLayout = "2006-01-02 15:04:05"

// firstLine returns the first line of a text, escaped and shortened to width characters.
func firstLine(text string, width int) string {
	line, _, cut := strings.Cut(text, "\n")
	line = strings.ReplaceAll(terminal.Escape(line), "\t", " ")
	runes := []rune(line)
	if len(runes) > width {
		runes, cut = runes[:width-1], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}

// countOf returns a number and a noun, in the plural unless the number is 1.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// thousandsOf is like countOf, with separators.
func thousandsOf(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// newTable returns a table with a header row.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row(header))
	return t
}

// printData prints the data folder of an answer.
func printData(w io.Writer, data string) { fmt.Fprintf(w, "data folder: %s\n", data) }
