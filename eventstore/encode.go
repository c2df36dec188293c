//go:build linux && cgo

package eventstore

import (
	"bufio"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/perigeedb/perigee/internal/terminal"
)

// A Format is how a result is written.
type Format string

const (
	FormatTable  Format = "table"  // for a terminal
	FormatJSON   Format = "json"   // one array of objects
	FormatNDJSON Format = "ndjson" // an object a line
	FormatCSV    Format = "csv"    // RFC 4180, with a header; a null is an empty field
	FormatArrow  Format = "arrow"  // an Arrow IPC stream
	// FormatParquet is a Parquet file. Limits.Rows is refused with it.
	FormatParquet Format = "parquet"
)

// Formats lists the formats.
func Formats() []Format {
	return []Format{FormatTable, FormatJSON, FormatNDJSON, FormatCSV, FormatArrow, FormatParquet}
}

// IsBinary reports whether a format is not text.
func (f Format) IsBinary() bool { return f == FormatArrow || f == FormatParquet }

const (
	tableRows   = 10_000    // a table stands in memory until its widths are known
	countedRows = 1_000_000 // read of a result of which a table shows both ends
	tableWidth  = 200       // characters of one cell
)

// Encode writes rows to w in the format of their statement. Nothing is
// buffered beyond a few kilobytes, except by FormatTable, which ends after
// 10,000 rows, or has those of Statement.Shown, and says so. The caller closes rows.
func Encode(w io.Writer, rows *Rows) error {
	buffer := bufio.NewWriter(w)
	var err error
	switch rows.format {
	case FormatTable:
		err = encodeTable(buffer, rows)
	case FormatJSON:
		err = encodeJSON(buffer, rows)
	case FormatNDJSON:
		err = encodeLines(buffer, rows)
	case FormatCSV:
		err = encodeCSV(buffer, rows)
	case FormatArrow, FormatParquet:
		err = rows.result.WriteStream(buffer)
	default:
		err = fmt.Errorf("eventstore: unknown format %q: one of %v", rows.format, Formats())
	}
	if err != nil {
		return err
	}
	return buffer.Flush()
}

// each calls f for every row and returns how many there were.
func each(rows *Rows, f func(i int, row []any) error) (int, error) {
	n := 0
	for ; rows.Next(); n++ {
		if err := f(n, rows.Row()); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

func encodeJSON(w *bufio.Writer, rows *Rows) error {
	w.WriteByte('[')
	var line []byte
	_, err := each(rows, func(i int, row []any) error {
		if i > 0 {
			w.WriteByte(',')
		}
		line = appendObject(append(line[:0], '\n'), rows.Columns(), row)
		_, err := w.Write(line)
		return err
	})
	if err != nil {
		return err
	}
	_, err = w.WriteString("\n]\n")
	return err
}

func encodeLines(w *bufio.Writer, rows *Rows) error {
	var line []byte
	_, err := each(rows, func(_ int, row []any) error {
		line = append(appendObject(line[:0], rows.Columns(), row), '\n')
		_, err := w.Write(line)
		return err
	})
	return err
}

func encodeCSV(w *bufio.Writer, rows *Rows) error {
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
			record[i] = Text(value)
		}
		return out.Write(record)
	})
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func encodeTable(w *bufio.Writer, rows *Rows) error {
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

// shownRows are the rows of a result that a table has.
type shownRows struct {
	rows [][]any
	gap  int  // the row before which others are left out; 0 for no gap
	all  int  // rows of the result that were read
	more bool // there are more than all
}

// readShown reads the rows that a table shows: those at both ends if the statement says how
// many, and otherwise the first.
func readShown(rows *Rows) (s shownRows, err error) {
	head, most := tableRows, tableRows
	tail := 0
	if rows.shown > 0 {
		head, tail, most = (rows.shown+1)/2, rows.shown/2, countedRows
	}
	var last [][]any // a ring
	for ; s.all < most && rows.Next(); s.all++ {
		switch row := rows.Row(); {
		case s.all < head:
			s.rows = append(s.rows, row)
		case len(last) < tail:
			last = append(last, row)
		case tail > 0:
			last[(s.all-head)%tail] = row
		}
	}
	s.more = s.all == most && rows.Next() || rows.Truncated()
	if tail > 0 && s.all > head+tail {
		s.gap = head
		oldest := (s.all - head) % tail
		last = append(last[oldest:len(last):len(last)], last[:oldest]...)
	}
	s.rows = append(s.rows, last...)
	return s, rows.Err()
}

// describe counts the rows.
func (s *shownRows) describe() string {
	noun := "rows"
	if s.all == 1 {
		noun = "row"
	}
	count := fmt.Sprintf("%d %s", s.all, noun)
	switch {
	case s.gap > 0 && s.more:
		return fmt.Sprintf("first %s, of which %d are shown, and there are more", count, len(s.rows))
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
			cells[i] = clean(Text(value))
		}
	}
	return cells
}

// omittedRow stands for rows that a table leaves out.
func omittedRow(columns int) table.Row {
	cells := make(table.Row, columns)
	for i := range cells {
		cells[i] = "·"
	}
	return cells
}

// align sets numbers to the right.
func align(sqlType string) text.Align {
	name, _, _ := strings.Cut(sqlType, "(")
	switch {
	case strings.HasSuffix(name, "INT"), name == "INTEGER", name == "UINTEGER", name == "DOUBLE", name == "FLOAT", name == "DECIMAL":
		return text.AlignRight
	}
	return text.AlignLeft
}

// clean makes text from events safe to show in a cell: it is escaped, and cut when long.
func clean(s string) string {
	runes := []rune(terminal.EscapeLine(s))
	if len(runes) > tableWidth {
		return string(runes[:tableWidth]) + "…"
	}
	return string(runes)
}

// Text spells a value for people; nil is "".
func Text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case JSON:
		return string(value)
	case float32:
		return strconv.FormatFloat(float64(value), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	case time.Time:
		return value.Format("2006-01-02 15:04:05.999999999")
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	case []any, Struct:
		return string(appendJSON(nil, value))
	}
	return fmt.Sprint(value)
}

func appendObject(dst []byte, columns []ColumnInfo, row []any) []byte {
	dst = append(dst, '{')
	for i, value := range row {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, columns[i].Name), ':')
		dst = appendJSON(dst, value)
	}
	return append(dst, '}')
}

// appendJSON spells a value as JSON. Numbers keep all their digits; what JSON
// has no number for, as infinity, is null; bytes are base64.
func appendJSON(dst []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, value)
	case int64:
		return strconv.AppendInt(dst, value, 10)
	case uint64:
		return strconv.AppendUint(dst, value, 10)
	case float32:
		return appendFloat(dst, float64(value), 32)
	case float64:
		return appendFloat(dst, value, 64)
	case Number:
		return append(dst, value...)
	case JSON:
		return append(dst, value...)
	case time.Time:
		return appendString(dst, value.Format(time.RFC3339Nano))
	case []any:
		dst = append(dst, '[')
		for i, item := range value {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, item)
		}
		return append(dst, ']')
	case Struct:
		dst = append(dst, '{')
		for i, field := range value {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, field.Name), ':')
			dst = appendJSON(dst, field.Value)
		}
		return append(dst, '}')
	}
	return appendString(dst, Text(value))
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

func appendString(dst []byte, s string) []byte {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.Encode(s) // a string always encodes
	return append(dst, strings.TrimSuffix(b.String(), "\n")...)
}
