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
	tableRows  = 10_000 // a table stands in memory until its widths are known
	tableWidth = 200    // characters of one cell
)

// Encode writes rows to w in the format of their statement. Nothing is
// buffered beyond a few kilobytes, except by FormatTable, which ends after
// 10,000 rows and says so. The caller closes rows.
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
	n := 0
	for ; n < tableRows && rows.Next(); n++ {
		row := rows.Row()
		cells := make(table.Row, len(row))
		for i, value := range row {
			cells[i] = "NULL"
			if value != nil {
				cells[i] = clean(Text(value))
			}
		}
		t.AppendRow(cells)
	}
	more := ""
	if n == tableRows && rows.Next() || rows.Truncated() {
		more = ", and there are more"
	}
	if err := rows.Err(); err != nil {
		return err
	}
	noun := "rows"
	if n == 1 {
		noun = "row"
	}
	_, err := fmt.Fprintf(w, "%s\n(%d %s%s)\n", t.Render(), n, noun, more)
	return err
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
