//go:build linux && cgo

package duckdb

/*
#include <stdlib.h>
#include "duckdb.h"

// Room for the structs of Arrow's C data interface, which have nine and ten words.
typedef struct { void *words[16]; } arrow_struct;
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
)

// A Result is the result of a statement, read as Arrow.
type Result struct {
	Native  duck.Result
	Types   []protocol.Type
	Names   []string
	options duck.ArrowOptions
	Schema  *arrow.Schema
	ended   bool // no more rows
}

// Describe reads the names and types of the columns.
func (r *Result) Describe() (err error) {
	if r.Types, err = resultTypes(&r.Native); err != nil {
		return err
	}
	r.options = duck.ResultGetArrowOptions(&r.Native)
	n := len(r.Types)
	types := unsafe.Slice((*C.duckdb_logical_type)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(uintptr(0))))), n)
	names := unsafe.Slice((**C.char)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(uintptr(0))))), n)
	defer func() {
		for i := range n {
			C.duckdb_destroy_logical_type(&types[i])
			C.free(unsafe.Pointer(names[i]))
		}
		C.free(unsafe.Pointer(unsafe.SliceData(types)))
		C.free(unsafe.Pointer(unsafe.SliceData(names)))
	}()
	for i := range n {
		r.Names = append(r.Names, duck.ColumnName(&r.Native, duck.IdxT(i)))
		names[i] = C.CString(r.Names[i])
		types[i] = C.duckdb_logical_type(duck.ColumnLogicalType(&r.Native, duck.IdxT(i)).Ptr)
	}
	var schema C.arrow_struct
	failed := C.duckdb_to_arrow_schema(C.duckdb_arrow_options(r.options.Ptr), unsafe.SliceData(types), unsafe.SliceData(names), C.idx_t(n), unsafe.Pointer(&schema))
	if err := arrowError(failed); err != nil {
		return err
	}
	r.Schema, err = cdata.ImportCArrowSchema((*cdata.CArrowSchema)(unsafe.Pointer(&schema)))
	return err
}

// arrowError converts and frees an error of DuckDB.
func arrowError(failed C.duckdb_error_data) error {
	defer C.duckdb_destroy_error_data(&failed)
	if !C.duckdb_error_data_has_error(failed) {
		return nil
	}
	return NewError(C.GoString(C.duckdb_error_data_message(failed)))
}

// Next returns the next rows, or nil at the end. The caller releases the rows.
func (r *Result) Next() (arrow.RecordBatch, error) {
	if r.ended {
		return nil, nil
	}
	chunk := duck.FetchChunk(r.Native)
	if r.ended = chunk.Ptr == nil; r.ended {
		if message := duck.ResultError(&r.Native); message != "" {
			return nil, NewError(message)
		}
		return nil, nil
	}
	defer duck.DestroyDataChunk(&chunk)
	rows := (*C.arrow_struct)(C.calloc(1, C.sizeof_arrow_struct))
	if rows == nil {
		return nil, errors.New("out of memory")
	}
	defer C.free(unsafe.Pointer(rows))
	failed := C.duckdb_data_chunk_to_arrow(C.duckdb_arrow_options(r.options.Ptr), C.duckdb_data_chunk(chunk.Ptr), unsafe.Pointer(rows))
	if err := arrowError(failed); err != nil {
		return nil, err
	}
	return cdata.ImportCRecordBatchWithSchema((*cdata.CArrowArray)(unsafe.Pointer(rows)), r.Schema)
}

// Close frees the result.
func (r *Result) Close() {
	if r.options.Ptr != nil {
		duck.DestroyArrowOptions(&r.options)
	}
	duck.DestroyResult(&r.Native)
}

func decodeRow(batch arrow.RecordBatch, types []protocol.Type, row int) []any {
	values := make([]any, len(types))
	for i := range types {
		values[i] = types[i].Decode(batch.Column(i), row)
	}
	return values
}

// ReadAll reads the remaining rows. The caller releases the batches.
func (r *Result) ReadAll() (all []arrow.RecordBatch, err error) {
	for {
		batch, err := r.Next()
		if err != nil {
			for _, b := range all {
				b.Release()
			}
			return nil, err
		}
		if batch == nil {
			return all, nil
		}
		all = append(all, batch)
	}
}
