// Package fileimport reads the rows of Parquet, CSV and NDJSON files, and appends them to a table
// of the event store, each row once. A separate process reads Parquet files. Nothing here is
// safe for concurrent use.
package fileimport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/catalog"
	"github.com/perigeedb/perigee/internal/lines"
	"github.com/perigeedb/perigee/source/format"
)

// Rows reads the rows of a file as JSON documents.
type Rows interface {
	// Read returns the next row, or io.EOF after the last.
	Read(ctx context.Context) (Row, error)
	// Skip skips the next n rows.
	Skip(ctx context.Context, n uint64) error
}

// A Row is a row of a file. It is valid until the next one is read.
type Row struct {
	Doc      []byte
	Line     int                  // number of the row in a file without lines
	Rejected *catalog.RejectedRow // nil if the row is a document
}

// A File is an open file that declares the columns of its rows.
type File interface {
	Rows
	Count() uint64 // number of rows
	Columns() []event.Column
	Close() error
}

// Identify returns an identifier of the content of a file, whatever its name, and its size. The
// file is then at its beginning.
func Identify(file *os.File) (id string, size int64, err error) {
	sum := sha256.New()
	if size, err = io.Copy(sum, file); err != nil {
		return "", 0, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", 0, event.WithHint(fmt.Errorf("read %s again: %w", file.Name(), err), "use a regular file; a pipe cannot be read twice")
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), size, nil
}

// RefuseCompressed returns an error for a compressed text file.
func RefuseCompressed(file *os.File) error {
	var begin [4]byte
	n, _ := file.ReadAt(begin[:], 0)
	for magic, kind := range map[string]string{"\x1f\x8b": "gzip", "\x28\xb5\x2f\xfd": "zstd"} {
		if bytes.HasPrefix(begin[:n], []byte(magic)) {
			return event.WithHint(fmt.Errorf("%s is compressed with %s", file.Name(), kind), "decompress it and import the result: "+kind+" -dc FILE > OTHER")
		}
	}
	return nil
}

// skipRows reads and discards n rows.
func skipRows(ctx context.Context, r Rows, n uint64) error {
	for range n {
		if _, err := r.Read(ctx); err != nil {
			return err
		}
	}
	return nil
}

type ndjsonRows struct{ lines *lines.Reader }

// NDJSON returns the rows of a file with one JSON document per line.
func NDJSON(in io.Reader) Rows { return &ndjsonRows{lines.NewReader(in)} }

func (r *ndjsonRows) Read(context.Context) (Row, error) {
	for {
		line, err := r.lines.Read()
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return Row{Doc: line, Line: r.lines.Number()}, nil
		}
		if err != nil {
			return Row{}, err
		}
	}
}

func (r *ndjsonRows) Skip(ctx context.Context, n uint64) error { return skipRows(ctx, r, n) }

// recordMax bounds the memory for one record: an unclosed quote turns the rest of the file into
// one record.
const recordMax = lines.BytesMax

// A recordLimit fails once a record is longer than recordMax. The reader behind it reads a few
// kilobytes ahead.
type recordLimit struct {
	in   io.Reader
	read int // since the record began
}

func (r *recordLimit) Read(p []byte) (int, error) {
	if r.read > recordMax {
		return 0, event.WithHint(fmt.Errorf("a record is longer than %d MiB", recordMax>>20), "look for an unclosed quote")
	}
	n, err := r.in.Read(p)
	r.read += n
	return n, err
}

type csvRows struct {
	in    *csv.Reader
	limit *recordLimit
	row   *format.Row
	doc   []byte
}

// CSV returns the rows of a CSV file, whose first line names the fields. text names the fields
// that are text whatever they look like.
func CSV(in io.Reader, text map[string]bool) (Rows, error) {
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

func (r *csvRows) Skip(ctx context.Context, n uint64) error { return skipRows(ctx, r, n) }

func (r *csvRows) Read(context.Context) (Row, error) {
	r.limit.read = 0
	record, err := r.in.Read()
	if err != nil {
		return Row{}, err
	}
	line, _ := r.in.FieldPos(0)
	r.doc = r.row.Append(r.doc[:0], record)
	return Row{Doc: r.doc, Line: line}, nil
}
