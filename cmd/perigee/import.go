package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/eventsql"
	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/source/format"
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

// A rowReader reads the rows of a file as JSON documents.
type rowReader interface {
	// read returns the next row, or io.EOF after the last.
	read() (importRow, error)
	// skip skips the next n rows.
	skip(n uint64) error
}

// An importRow is a row of a file. It is valid until the next one is read.
type importRow struct {
	doc      []byte
	line     int                   // number of the row in a file without lines
	rejected *eventsql.RejectedRow // nil if the row is a document
}

// An importSource is a file that is being imported.
type importSource struct {
	rows     rowReader
	columns  []eventsql.Column // nil if the file does not declare them
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
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return event.WithHint(fmt.Errorf("read %s again: %w", name, err), "use a regular file; a pipe cannot be read twice")
	}
	source, err := i.open(ctx, c, data, file, uint64(size))
	if err != nil {
		return err
	}
	defer source.close()
	defer source.progress.show()()
	f := eventsql.ImportFile{Table: i.Table, Time: i.Time, File: fmt.Sprintf("sha256:%x", sum.Sum(nil)), Columns: source.columns, Again: i.Again}
	return eventsql.Import(ctx, data, f, func(to *eventsql.Importer) error {
		run := fileImport{command: i, name: name, rows: source.rows, to: to}
		if err := run.run(ctx); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s: %s rows imported, %s imported before, %s rejected\n", name,
			thousands(run.imported), thousands(to.Next()), thousands(run.rejected))
		reportInferred(c.err, to.Inferred())
		return nil
	})
}

// reportInferred reports that an import has created a table, and how to declare its times.
func reportInferred(w io.Writer, t *eventsql.Inferred) {
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
	if err := refuseCompressed(file); err != nil {
		return nil, err
	}
	s := &importSource{progress: newNodeProgress(c, "bytes", size, false), close: func() error { return nil }}
	in := &countingReader{file, s.progress}
	var err error
	switch format {
	case "ndjson", "jsonl":
		s.rows = &ndjsonRows{newLineReader(in)}
	case "csv":
		s.rows, err = newCSVRows(in, i.textColumns(data))
	default:
		err = event.WithHint(usageError(fmt.Sprintf("unknown format of %s", file.Name())), "add --format parquet, csv or ndjson")
	}
	return s, err
}

// refuseCompressed returns an error for a compressed text file.
func refuseCompressed(file *os.File) error {
	var begin [4]byte
	n, _ := file.ReadAt(begin[:], 0)
	for magic, kind := range map[string]string{"\x1f\x8b": "gzip", "\x28\xb5\x2f\xfd": "zstd"} {
		if bytes.HasPrefix(begin[:n], []byte(magic)) {
			return event.WithHint(fmt.Errorf("%s is compressed with %s", file.Name(), kind), "decompress it and import the result: "+kind+" -dc FILE > OTHER")
		}
	}
	return nil
}

// csvRecordMax bounds the memory for one record: an unclosed quote turns the rest of the file
// into one record.
const csvRecordMax = lineBytesMax

// A recordLimit fails once a record is longer than csvRecordMax. The reader behind it reads a
// few kilobytes ahead.
type recordLimit struct {
	in   io.Reader
	read int // since the record began
}

func (r *recordLimit) Read(p []byte) (int, error) {
	if r.read > csvRecordMax {
		return 0, event.WithHint(fmt.Errorf("a record is longer than %d MiB", csvRecordMax>>20), "look for an unclosed quote")
	}
	n, err := r.in.Read(p)
	r.read += n
	return n, err
}

// skipRows reads and discards n rows.
func skipRows(r rowReader, n uint64) error {
	for range n {
		if _, err := r.read(); err != nil {
			return err
		}
	}
	return nil
}

type parquetRows struct {
	ctx      context.Context
	file     *eventsql.ParquetFile
	progress *nodeProgress
}

func openParquet(ctx context.Context, c *console, name string) (*importSource, error) {
	file, err := eventsql.OpenParquet(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &importSource{columns: file.Columns(), progress: newNodeProgress(c, "rows", file.Count(), false), close: file.Close}
	s.rows = &parquetRows{ctx, file, s.progress}
	return s, nil
}

func (r *parquetRows) read() (importRow, error) {
	doc, rejected, err := r.file.Next(r.ctx)
	if err != nil {
		return importRow{}, err
	}
	number := r.progress.done.Add(1)
	return importRow{doc, int(number), rejected}, nil
}

func (r *parquetRows) skip(n uint64) error {
	r.file.Skip(n)
	r.progress.done.Add(n)
	return nil
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

type ndjsonRows struct{ lines *lineReader }

func (r *ndjsonRows) read() (importRow, error) {
	for {
		line, err := r.lines.readLine()
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return importRow{doc: line, line: r.lines.read}, nil
		}
		if err != nil {
			return importRow{}, err
		}
	}
}

func (r *ndjsonRows) skip(n uint64) error { return skipRows(r, n) }

type csvRows struct {
	in    *csv.Reader
	limit *recordLimit
	row   *format.Row
	doc   []byte
}

func newCSVRows(in io.Reader, text map[string]bool) (*csvRows, error) {
	limit := &recordLimit{in: in}
	r := &csvRows{in: csv.NewReader(limit), limit: limit}
	r.in.ReuseRecord = true
	names, err := r.in.Read()
	if err != nil && err != io.EOF {
		return nil, err
	}
	r.row, err = format.NewRow(slices.Clone(names), text)
	return r, err
}

func (r *csvRows) skip(n uint64) error { return skipRows(r, n) }

func (r *csvRows) read() (importRow, error) {
	r.limit.read = 0
	record, err := r.in.Read()
	if err != nil {
		return importRow{}, err
	}
	line, _ := r.in.FieldPos(0)
	r.doc = r.row.Append(r.doc[:0], record)
	return importRow{doc: r.doc, line: line}, nil
}

const (
	importRowsMax  = 10_000 // rows of one append
	importBytesMax = 8 << 20
)

// A fileImport appends the rows of one file.
type fileImport struct {
	command            *importCommand
	name               string
	rows               rowReader
	to                 *eventsql.Importer
	imported, rejected uint64

	batch eventsql.ImportRows
	docs  [][]byte                     // of the batch
	lines []int                        // of docs
	bad   map[int]eventsql.RejectedRow // by index in docs: rows that are not documents
}

func (f *fileImport) run(ctx context.Context) error {
	position := f.to.Next()
	err := f.rows.skip(position)
	for err == nil {
		err = f.fill(&position)
		if f.batch.Count > 0 && (err == nil || err == io.EOF) {
			if err := f.append(ctx); err != nil {
				return err
			}
		}
	}
	if err != io.EOF {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// fill reads the next rows. position is the number of the next row in the file.
func (f *fileImport) fill(position *uint64) error {
	f.batch, f.docs, f.lines, f.bad = eventsql.ImportRows{First: *position}, f.docs[:0], f.lines[:0], map[int]eventsql.RejectedRow{}
	for size := 0; len(f.docs) < importRowsMax && size < importBytesMax; *position++ {
		row, err := f.rows.read()
		if err != nil {
			return err
		}
		if r := row.rejected; r != nil {
			f.bad[len(f.docs)] = eventsql.RejectedRow{Row: len(f.docs), Column: r.Column, Reason: r.Reason}
		}
		f.batch.Count++
		f.docs = append(f.docs, bytes.Clone(row.doc))
		f.lines = append(f.lines, row.line)
		size += len(row.doc)
	}
	return nil
}

// append appends the batch. With --rejected it leaves out invalid rows; otherwise it stops
// at the first of them.
func (f *fileImport) append(ctx context.Context) error {
	var rejected []eventsql.RejectedRow
	for row, doc := range f.docs {
		if bad, ok := f.bad[row]; ok {
			rejected = append(rejected, bad)
		} else if !json.Valid(doc) {
			rejected = append(rejected, eventsql.RejectedRow{Row: row, Reason: "the row is not valid JSON"})
		}
	}
	for {
		if len(rejected) > 0 && f.command.Rejected == "" {
			return f.stopAt(ctx, rejected[0])
		}
		if err := f.reject(rejected); err != nil {
			return err
		}
		f.batch.Documents = f.batch.Documents[:0]
		left := map[uint32]bool{}
		for _, row := range f.batch.LeaveOut {
			left[row] = true
		}
		for row, doc := range f.docs {
			if !left[uint32(row)] {
				f.batch.Documents = append(append(f.batch.Documents, doc...), '\n')
			}
		}
		var err error
		if rejected, err = f.to.Append(ctx, &f.batch); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if len(rejected) == 0 {
			f.imported += f.batch.Count - uint64(len(left))
			return nil
		}
	}
}

// stopAt appends the rows before an invalid one, and returns the error of that row.
func (f *fileImport) stopAt(ctx context.Context, r eventsql.RejectedRow) error {
	line := f.lines[r.Row]
	if f.docs, f.lines, f.batch.Count = f.docs[:r.Row], f.lines[:r.Row], uint64(r.Row); r.Row > 0 {
		if err := f.append(ctx); err != nil {
			return err
		}
	}
	what := r.Reason
	if r.Column != "" {
		what = fmt.Sprintf("column %s: %s", r.Column, r.Reason)
	}
	return event.WithHint(fmt.Errorf("%s:%d: %s", f.name, line, what),
		"correct the line, or write invalid rows to a file with --rejected FILE; the rows before it are stored")
}

// reject writes rows to the file of rejected rows, and leaves them out of the batch.
func (f *fileImport) reject(rows []eventsql.RejectedRow) error {
	if len(rows) == 0 {
		return nil
	}
	out, err := os.OpenFile(f.command.Rejected, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the file of rejected rows: %w", err)
	}
	var text bytes.Buffer
	encoder := newEncoder(&text)
	for _, r := range rows {
		f.batch.LeaveOut = append(f.batch.LeaveOut, uint32(r.Row))
		if err := encoder.Encode(rejectedLine{f.name, f.lines[r.Row], r.Column, r.Reason, string(f.docs[r.Row])}); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	f.rejected += uint64(len(rows))
	_, err = out.Write(text.Bytes())
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("write the file of rejected rows: %w", err)
	}
	return nil
}

// A rejectedLine is a row in the file of rejected rows.
type rejectedLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column string `json:"column,omitempty"`
	Reason string `json:"reason"`
	Row    string `json:"row"`
}
