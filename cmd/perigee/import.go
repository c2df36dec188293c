package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/perigeedb/perigee/engine/eventservice"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/eventstore/fileimport"
)

type importCommand struct {
	dataFlags
	Table    string   `arg:"" help:"Name of the table; it is created if it does not exist."`
	Files    []string `arg:"" name:"file" help:"Parquet files, CSV files with a header, or files with one JSON object per line."`
	Format   string   `enum:"parquet,csv,ndjson," default:"" help:"parquet, csv or ndjson (default: the extension of the file)."`
	Time     string   `placeholder:"COLUMN" help:"Time column of a new table."`
	Rejected string   `placeholder:"FILE" help:"Append invalid rows to this file, one JSON object per line, and continue."`
	Again    bool     `help:"Append the rows again, even if they were imported from the same file before."`
}

func (importCommand) Help() string {
	return `Appends the rows of files to a table of the event store, with or without a running engine. It stores each
row once, even if you run the command again: the table remembers the content of the file, regardless of
its name, and the numbers of its rows. Run the same command again to continue after an interruption.

The command stops at the first invalid row and names its line; the rows before it are stored. With
--rejected it writes invalid rows to a file and continues.

The first line of a CSV file names the fields. An empty field is left out. A field is text if the table's
column is text; otherwise true, false and JSON numbers become such values.

For CSV and JSON, a new table infers the types of its columns from the rows; times stay text. The command
then prints a declaration that makes them times.

A Parquet file contains the types of its columns; a new table declares them. Nested columns become JSON.
The command refuses a column of an unsupported type, such as an interval. A row with NaN or infinity is
invalid. A separate process reads the file, and can open no other.

Examples:
  perigee import events events-2026-11.parquet --time time
  perigee import events events-2026-11.ndjson --time time
  perigee import events archive/*.csv --rejected rejected.ndjson`
}

func (i *importCommand) Run(c *console) error {
	data, _, err := i.locate(c)
	if err != nil {
		return err
	}
	for _, name := range i.Files {
		if err := i.importFile(c, data, name); err != nil {
			return err
		}
	}
	printData(c.out, data)
	return nil
}

// An importSource is a file that is being imported.
type importSource struct {
	rows     fileimport.Rows
	columns  []catalog.Column // nil if the file does not declare them
	progress *nodeProgress
	close    func() error
}

func (i *importCommand) importFile(c *console, data, name string) error {
	ctx := context.Background()
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open the file to import: %w", err)
	}
	defer file.Close()
	id, size, err := fileimport.Identify(file)
	if err != nil {
		return err
	}
	source, err := i.open(ctx, c, data, file, uint64(size))
	if err != nil {
		return err
	}
	defer source.close()
	defer source.progress.show()()
	f := eventservice.ImportFile{Table: i.Table, Time: i.Time, File: id, Columns: source.columns, Again: i.Again}
	return eventservice.Import(ctx, data, f, func(to *eventservice.Importer) error {
		done, err := fileimport.Copy(ctx, name, source.rows, to, i.Rejected)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s: %s rows imported, %s imported before, %s rejected\n", name,
			thousands(done.Imported), thousands(to.Next()), thousands(done.Rejected))
		reportInferred(c.err, to.Inferred())
		return nil
	})
}

// reportInferred reports that an import has created a table, and how to declare its times.
func reportInferred(w io.Writer, t *eventservice.Inferred) {
	switch {
	case t == nil:
	case t.Declaration == "":
		fmt.Fprintf(w, "created table %[1]s with the columns and types of the rows: perigee table show %[1]s\n", t.Table)
	default:
		fmt.Fprintf(w, "created table %s with the columns and types of the rows: its times are text\n  declare: %s\n"+
			"  hint: add this declaration to the configuration; perigee check then names the commands that apply it to the table\n", t.Table, t.Declaration)
	}
}

// open opens a file's rows.
func (i *importCommand) open(ctx context.Context, c *console, data string, file *os.File, size uint64) (*importSource, error) {
	format := i.Format
	if format == "" {
		format = strings.TrimPrefix(filepath.Ext(file.Name()), ".")
	}
	if format == "parquet" {
		return openParquet(ctx, c, file.Name())
	}
	if err := fileimport.RefuseCompressed(file); err != nil {
		return nil, err
	}
	s := &importSource{progress: newNodeProgress(c, "bytes", size, false), close: func() error { return nil }}
	in := &countingReader{file, s.progress}
	var err error
	switch format {
	case "ndjson", "jsonl":
		s.rows = fileimport.NDJSON(in)
	case "csv":
		s.rows, err = fileimport.CSV(in, i.textColumns(data))
	default:
		err = event.WithHint(usageError(fmt.Sprintf("unknown format of %s", file.Name())), "add --format parquet, csv or ndjson")
	}
	return s, err
}

// countedRows reports the rows that were read.
type countedRows struct {
	fileimport.Rows
	progress *nodeProgress
}

func (r *countedRows) Read(ctx context.Context) (fileimport.Row, error) {
	row, err := r.Rows.Read(ctx)
	if err == nil {
		r.progress.done.Add(1)
	}
	return row, err
}

func (r *countedRows) Skip(ctx context.Context, n uint64) error {
	r.progress.done.Add(n)
	return r.Rows.Skip(ctx, n)
}

func openParquet(ctx context.Context, c *console, name string) (*importSource, error) {
	file, err := eventservice.OpenParquet(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &importSource{progress: newNodeProgress(c, "rows", file.Count(), false), close: file.Close}
	for _, column := range file.Columns() {
		s.columns = append(s.columns, catalog.Column{Name: column.Name, Type: column.Type.String() + column.Digits.String()})
	}
	s.rows = &countedRows{file, s.progress}
	return s, nil
}

// textColumns returns the text columns of the table, if it exists.
func (i *importCommand) textColumns(data string) map[string]bool {
	text := map[string]bool{}
	t, err := findTable(data, i.Table)
	if err != nil {
		return text // the table is missing; the import reports any other error
	}
	for _, c := range t.Columns {
		text[c.Name] = c.Type == "VARCHAR"
	}
	return text
}
