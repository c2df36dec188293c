// Package output writes the rows of a query as tables for people, as JSON and CSV, and in the
// binary formats that a SQL worker sends. It accepts rows as an interface, so it does not
// depend on the event store. Concurrent calls of Write need separate rows and writers.
package output

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/terminal"
)

// Rows is the result of a statement, such as eventstore.Rows. Only Write may use it while
// Write runs.
type Rows interface {
	Columns() []catalog.Column
	Next() bool
	Row() []any
	Err() error
	Truncated() bool
	Format() protocol.Format
	Shown() int                    // number of rows to show in a table; 0 for the first 10,000
	WriteStream(w io.Writer) error // writes a binary format; call instead of Next
}

// TableRowsMax is the maximum number of rows in a table.
const TableRowsMax = 10_000 // a table is in memory until its column widths are known

const (
	countedRows = 1_000_000 // maximum rows read of a result if a table shows both ends
	tableWidth  = 200       // maximum characters of a cell
)

// Write writes rows to w in the format of their statement. It buffers at most a few
// kilobytes, except in protocol.FormatTable. A table ends after 10,000 rows, or shows
// Statement.Shown rows, and says so. The caller closes rows.
func Write(w io.Writer, rows Rows) error {
	buffer := bufio.NewWriter(w)
	var err error
	switch rows.Format() {
	case protocol.FormatTable:
		err = encodeTable(buffer, rows)
	case protocol.FormatJSON:
		err = encodeJSON(buffer, rows)
	case protocol.FormatNDJSON:
		err = encodeLines(buffer, rows)
	case protocol.FormatCSV:
		err = encodeCSV(buffer, rows)
	case protocol.FormatArrow, protocol.FormatParquet:
		err = rows.WriteStream(buffer)
	default:
		err = fmt.Errorf("eventstore: unknown format %q: one of %v", rows.Format(), protocol.Formats())
	}
	if err != nil {
		return err
	}
	return buffer.Flush()
}

// each calls f for every row and returns the number of rows.
func each(rows Rows, f func(i int, row []any) error) (int, error) {
	n := 0
	for ; rows.Next(); n++ {
		if err := f(n, rows.Row()); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

func encodeJSON(w *bufio.Writer, rows Rows) error {
	w.WriteByte('[')
	var line []byte
	_, err := each(rows, func(i int, row []any) error {
		if i > 0 {
			w.WriteByte(',')
		}
		line = protocol.AppendObject(append(line[:0], '\n'), rows.Columns(), row)
		_, err := w.Write(line)
		return err
	})
	if err != nil {
		return err
	}
	_, err = w.WriteString("\n]\n")
	return err
}

func encodeLines(w *bufio.Writer, rows Rows) error {
	var line []byte
	_, err := each(rows, func(_ int, row []any) error {
		line = append(protocol.AppendObject(line[:0], rows.Columns(), row), '\n')
		_, err := w.Write(line)
		return err
	})
	return err
}

func encodeCSV(w *bufio.Writer, rows Rows) error {
	out := csv.NewWriter(w)
	record := make([]string, len(rows.Columns()))
	for i, c := range rows.Columns() {
		record[i] = c.Name
	}
	if err := out.Write(record); err != nil {
		return err
	}
	_, err := each(rows, func(_ int, row []any) error {
		for i, value := range row {
			record[i] = protocol.Text(value)
		}
		return out.Write(record)
	})
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func encodeTable(w *bufio.Writer, rows Rows) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	var header table.Row
	var configs []table.ColumnConfig
	for i, c := range rows.Columns() {
		header = append(header, clean(c.Name))
		configs = append(configs, table.ColumnConfig{Number: i + 1, Align: align(c.Type), AlignHeader: align(c.Type)})
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	shown, err := readShown(rows)
	if err != nil {
		return err
	}
	for i, row := range shown.rows {
		if i > 0 && i == shown.gap {
			t.AppendRow(omittedRow(len(row)))
		}
		t.AppendRow(tableCells(row))
	}
	_, err = fmt.Fprintf(w, "%s\n(%s)\n", t.Render(), shown.describe())
	return err
}

// shownRows are the rows of a result that a table shows.
type shownRows struct {
	rows [][]any
	gap  int  // index of the row after the omitted rows; 0 for no gap
	all  int  // number of rows read from the result
	more bool // the result has more rows than all
}

// readShown reads the rows that a table shows: rows from both ends if the statement sets
// their number, otherwise the first rows.
func readShown(rows Rows) (s shownRows, err error) {
	head, maxRows := TableRowsMax, TableRowsMax
	tail := 0
	if rows.Shown() > 0 {
		head, tail, maxRows = (rows.Shown()+1)/2, rows.Shown()/2, countedRows
	}
	var last [][]any // a ring buffer
	for ; s.all < maxRows && rows.Next(); s.all++ {
		switch row := rows.Row(); {
		case s.all < head:
			s.rows = append(s.rows, row)
		case len(last) < tail:
			last = append(last, row)
		case tail > 0:
			last[(s.all-head)%tail] = row
		}
	}
	s.more = s.all == maxRows && rows.Next() || rows.Truncated()
	if tail > 0 && s.all > head+tail {
		s.gap = head
		oldest := (s.all - head) % tail
		last = append(last[oldest:len(last):len(last)], last[:oldest]...)
	}
	s.rows = append(s.rows, last...)
	return s, rows.Err()
}

// describe returns a summary of the number of rows.
func (s *shownRows) describe() string {
	noun := "rows"
	if s.all == 1 {
		noun = "row"
	}
	count := fmt.Sprintf("%d %s", s.all, noun)
	switch {
	case s.gap > 0 && s.more:
		return fmt.Sprintf("first %s, %d shown, and there are more", count, len(s.rows))
	case s.gap > 0:
		return fmt.Sprintf("%s, %d shown", count, len(s.rows))
	case s.more:
		return count + ", and there are more"
	}
	return count
}

func tableCells(row []any) table.Row {
	cells := make(table.Row, len(row))
	for i, value := range row {
		cells[i] = "NULL"
		if value != nil {
			cells[i] = clean(protocol.Text(value))
		}
	}
	return cells
}

// omittedRow returns the table row that marks omitted rows.
func omittedRow(columns int) table.Row {
	cells := make(table.Row, columns)
	for i := range cells {
		cells[i] = "·"
	}
	return cells
}

// align aligns numbers to the right.
func align(sqlType string) text.Align {
	name, _, _ := strings.Cut(sqlType, "(")
	switch {
	case strings.HasSuffix(name, "INT"), name == "INTEGER", name == "UINTEGER", name == "DOUBLE", name == "FLOAT", name == "DECIMAL":
		return text.AlignRight
	}
	return text.AlignLeft
}

// clean makes text from events safe to show in a cell. It escapes the text and truncates it
// if it is long.
func clean(s string) string {
	runes := []rune(terminal.EscapeLine(s))
	if len(runes) > tableWidth {
		return string(runes[:tableWidth]) + "…"
	}
	return string(runes)
}
