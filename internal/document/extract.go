//go:build cgo

package document

// #cgo CFLAGS: -std=c11 -O2 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "extract.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/document/report"
)

// ErrMemory means that a memory allocation in C failed.
var ErrMemory = errors.New("out of memory")

// An Extractor fills typed columns from documents. Only one goroutine at a time may use it. It
// reuses its memory, which the garbage collector frees with it.
type Extractor struct {
	spec []event.Column
	c    *C.extractor
}

// NewExtractor compiles spec. Its paths must not be empty.
func NewExtractor(spec []event.Column) *Extractor {
	c := C.doc_extract_new(C.uint32_t(len(spec)))
	if c == nil {
		panic("document: out of memory")
	}
	for i, column := range spec {
		compile(c, i, column)
	}
	x := &Extractor{spec: spec, c: c}
	runtime.AddCleanup(x, func(c *C.extractor) { C.doc_extract_free(c) }, c)
	return x
}

func compile(c *C.extractor, i int, column event.Column) {
	required := C.int(0)
	if column.Required {
		required = 1
	}
	fault := C.doc_extract_column(c, C.uint32_t(i), C.int(column.Type), C.int(column.Unit), required, C.uint32_t(len(column.Path)))
	for k, key := range column.Path {
		fault |= C.doc_extract_key(c, C.uint32_t(i), C.uint32_t(k), (*C.char)(unsafe.Pointer(unsafe.StringData(key))), C.size_t(len(key)))
	}
	if fault != 0 {
		panic("document: out of memory")
	}
}

// ReportUnknown makes Extract also report the fields that the spec does not name.
func (x *Extractor) ReportUnknown() { x.c.unknown = 1 }

// Extract adds a row to cols for each document. Existing rows of cols must have the same spec.
// Values that do not fit become null and are reported. An error means that memory is exhausted, not
// that a document is invalid.
func (x *Extractor) Extract(data []byte, ends []uint32, cols *event.Columns) (Report, error) {
	defer runtime.KeepAlive(x)
	if len(ends) == 0 {
		prepare(cols, x.spec)
		return Report{}, nil
	}
	fault := C.doc_extract_run(x.c, (*C.char)(unsafe.Pointer(unsafe.SliceData(data))),
		(*C.uint32_t)(unsafe.SliceData(ends)), C.uint32_t(len(ends)))
	if fault != 0 {
		return Report{}, ErrMemory
	}
	return Report{Rejected: x.Collect(data, cols), Unknown: x.unknown()}, nil
}

// Native returns the C extractor, for a run inside another crossing; Collect then fetches the rows.
func (x *Extractor) Native() unsafe.Pointer { return unsafe.Pointer(x.c) }

// Collect adds to cols the rows that the last run over data extracted, and returns the rejected
// values.
func (x *Extractor) Collect(data []byte, cols *event.Columns) []Rejected {
	defer runtime.KeepAlive(x)
	prepare(cols, x.spec)
	first, rows := cols.Rows, int(x.c.rows)
	cols.Rows += rows
	native := unsafe.Slice(x.c.columns, len(x.spec))
	for i := range x.spec {
		fill(&cols.Vectors[i], x.spec[i].Type, &native[i], rows)
	}
	rejected := x.rejected(data)
	for i := range rejected {
		rejected[i].Row += first
	}
	return rejected
}

// prepare gives columns without rows their spec.
func prepare(cols *event.Columns, spec []event.Column) {
	if cols.Rows > 0 {
		return
	}
	cols.Spec = spec
	if len(cols.Vectors) != len(spec) {
		cols.Vectors = make([]event.Vector, len(spec))
	}
	cols.Reset()
}

func fill(v *event.Vector, t event.Type, c *C.column, rows int) {
	v.Null = append(v.Null, unsafe.Slice((*uint8)(c.null), rows)...)
	switch t {
	case event.Float64:
		v.Floats = append(v.Floats, unsafe.Slice((*float64)(c.floats), rows)...)
	case event.Decimal, event.String, event.JSON:
		first, move := len(v.Ends), uint32(len(v.Bytes))
		v.Ends = append(v.Ends, unsafe.Slice((*uint32)(c.ends), rows)...)
		for i := first; i < len(v.Ends) && move > 0; i++ {
			v.Ends[i] += move
		}
		v.Bytes = append(v.Bytes, unsafe.Slice((*byte)(unsafe.Pointer(c.bytes.data)), int(c.bytes.len))...)
	default:
		v.Ints = append(v.Ints, unsafe.Slice((*int64)(c.ints), rows)...)
	}
}

func (x *Extractor) rejected(data []byte) []Rejected {
	if x.c.rejected_count == 0 {
		return nil
	}
	all := make([]Rejected, 0, x.c.rejected_count)
	for _, b := range unsafe.Slice(x.c.rejected, int(x.c.rejected_count)) {
		bad := Rejected{Row: int(b.row), Column: int(b.column), Kind: Kind(b.kind)}
		if b.column < 0 {
			err := report.SyntaxError{Code: report.Code(b.misfit), Offset: int(b.offset)}
			bad.Reason = err.Error()
		} else {
			bad.Value = report.Clip(data[b.offset : b.offset+b.len])
			bad.Reason = report.Misfit(b.misfit).Column(x.spec[b.column], bad.Value)
		}
		all = append(all, bad)
	}
	return all
}

func (x *Extractor) unknown() []Field {
	var fields []Field
	names := unsafe.Slice(x.c.names, int(x.c.name_count))
	for _, name := range names[x.c.column_names:] {
		if name.kinds != 0 {
			text := unsafe.Slice((*byte)(unsafe.Pointer(name.text.data)), int(name.text.len))
			fields = append(fields, Field{Name: string(text), Kinds: Kind(name.kinds)})
		}
	}
	return fields
}
