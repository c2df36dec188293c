package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/sqltext"
)

type exportCommand struct {
	dataFlags
	Table  string `arg:"" help:"Name of the table."`
	Target string `arg:"" help:"New file, - for standard output, or a folder, ending in /, for one file per day."`
	Format string `enum:"parquet,csv,ndjson," default:"" help:"parquet, csv or ndjson (default: the extension of the file)."`
	Where  string `placeholder:"SQL" help:"Export only rows for which this condition is true."`
}

func (exportCommand) Help() string {
	return `Writes the rows of a table of the event store into files, with or without a running engine. Each file
contains the rows as they are when the file is begun. It appears under its name only when it is complete
and on the disk.

A folder gets one file for each day of event time, such as events-2026-11-23.parquet. The command skips
days that already have a file, so run it again to continue after an interruption. Remove the file of a
day to export that day again.

Examples:
  perigee export events events.parquet
  perigee export events - --format csv --where "user = 7"
  perigee export events archive/ --format parquet --where "time < '2026-11-01'"`
}

// exportTime bounds the query of one file.
const exportTime = 24 * time.Hour

func (e *exportCommand) Run(c *console) error {
	data, _, err := e.locate(c)
	if err != nil {
		return err
	}
	format, err := e.format()
	if err != nil {
		return err
	}
	t, err := findTable(data, e.Table)
	if err != nil {
		return err
	}
	if strings.HasSuffix(e.Target, "/") {
		return e.writeDays(c, data, t, format)
	}
	if e.Target == "-" {
		return e.write(data, t, format, "", c.out)
	}
	if err := e.writeFile(c, data, t, format, "", e.Target); err != nil {
		return err
	}
	printData(c.out, data)
	return nil
}

// format returns the requested format.
func (e *exportCommand) format() (string, error) {
	if e.Format != "" {
		return e.Format, nil
	}
	switch end := strings.TrimPrefix(filepath.Ext(e.Target), "."); end {
	case "parquet", "csv", "ndjson":
		return end, nil
	}
	return "", event.WithHint(usageError(fmt.Sprintf("unknown format of %s", e.Target)), "add --format parquet, csv or ndjson")
}

// writeDays writes a file for each day that has none.
func (e *exportCommand) writeDays(c *console, data string, t *catalog.Table, format string) error {
	if t.Time == "" {
		return event.WithHint(fmt.Errorf("table %s has no time column to divide it by days", t.Name), "export it into one file")
	}
	if err := os.MkdirAll(e.Target, 0o755); err != nil {
		return fmt.Errorf("create the folder: %w", err)
	}
	day := fmt.Sprintf("CAST(%s AS DATE)", sqltext.QuoteName(t.Time))
	var answer strings.Builder
	if err := e.query(data, e.sql(fmt.Sprintf("DISTINCT CAST(%s AS VARCHAR) AS day", day), t, "")+" ORDER BY day", "csv", &answer); err != nil {
		return err
	}
	for _, one := range strings.Fields(answer.String())[1:] {
		name := filepath.Join(e.Target, fmt.Sprintf("%s-%s.%s", t.Name, one, format))
		if _, err := os.Stat(name); err == nil {
			fmt.Fprintf(c.out, "%s exists, skipped\n", name)
			continue
		}
		if err := e.writeFile(c, data, t, format, fmt.Sprintf("%s = DATE '%s'", day, one), name); err != nil {
			return err
		}
	}
	printData(c.out, data)
	return nil
}

// writeFile writes the rows that satisfy the condition which and --where into a new file.
func (e *exportCommand) writeFile(c *console, data string, t *catalog.Table, format, which, name string) error {
	progress := newNodeProgress(c, "bytes", 0, false)
	hide := progress.show()
	err := createFile(name, func(w io.Writer) error {
		return e.write(data, t, format, which, &countingWriter{w, progress})
	})
	hide()
	if err == nil {
		fmt.Fprintf(c.out, "%s written, %s\n", name, byteCount(progress.done.Load()))
	}
	return err
}

func (e *exportCommand) write(data string, t *catalog.Table, format, which string, w io.Writer) error {
	return e.query(data, e.sql("*", t, which), format, w)
}

// sql returns the query of some columns.
func (e *exportCommand) sql(columns string, t *catalog.Table, which string) string {
	var conditions []string
	if e.Where != "" {
		conditions = append(conditions, "("+e.Where+"\n)")
	}
	if which != "" {
		conditions = append(conditions, which)
	}
	sql := fmt.Sprintf("SELECT %s FROM %s", columns, sqltext.QuoteName(t.Name))
	if len(conditions) > 0 {
		sql += " WHERE " + strings.Join(conditions, " AND ")
	}
	return sql
}

func (e *exportCommand) query(data, sql, format string, w io.Writer) error {
	err := eventservice.Query(context.Background(), data, eventservice.Request{SQL: sql, Format: format, Time: exportTime}, w)
	if errors.Is(err, context.DeadlineExceeded) {
		return event.WithHint(err, "export into a folder, with one file per day")
	}
	return err
}
