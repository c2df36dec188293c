//go:build linux && cgo

package eventsql

import (
	"context"

	"github.com/perigeedb/perigee/eventstore"
)

// A ParquetFile reads the rows of a Parquet file as JSON documents. It is not safe for
// concurrent use.
type ParquetFile struct{ file *eventstore.ParquetFile }

// OpenParquet opens a Parquet file. A separate process reads it.
func OpenParquet(ctx context.Context, name string) (*ParquetFile, error) {
	file, err := eventstore.OpenParquet(ctx, name)
	if err != nil {
		return nil, err
	}
	return &ParquetFile{file}, nil
}

// Count returns the number of rows.
func (f *ParquetFile) Count() uint64 { return uint64(f.file.Count()) }

// Columns returns the columns of a table for the rows, with types of a configuration.
func (f *ParquetFile) Columns() (columns []Column) {
	for _, c := range f.file.Columns() {
		columns = append(columns, Column{Name: c.Name, Type: c.Type.String() + c.Digits.String()})
	}
	return columns
}

// Skip skips the next n rows.
func (f *ParquetFile) Skip(n uint64) { f.file.Skip(int64(n)) }

// Next returns the next row, valid until the next call, or io.EOF after the last. rejected
// describes a value that no document can contain.
func (f *ParquetFile) Next(ctx context.Context) (doc []byte, rejected *RejectedRow, err error) {
	doc, bad, err := f.file.Next(ctx)
	if bad != nil {
		rejected = &RejectedRow{Column: bad.Column, Reason: bad.Reason}
	}
	return doc, rejected, err
}

// Close ends the process that reads the file.
func (f *ParquetFile) Close() error { return f.file.Close() }
