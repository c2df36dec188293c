//go:build cgo

package document

// #include "document.h"
//
// // check_rows finds the first invalid document from row *row on. It stores its row in *row and
// // returns its error, or DOC_OK if all n rows are valid.
// static int check_rows(doc *d, const char *data, const uint32_t *ends, uint32_t n, uint32_t *row) {
//	int fault = DOC_OK;
//	for (; *row < n; ++*row) {
//		uint32_t from = *row ? ends[*row - 1] : 0;
//		if ((fault = doc_index(d, data + from, ends[*row] - from, data + ends[n - 1]))) break;
//	}
//	doc_trim(d);
//	return fault;
// }
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/perigeedb/perigee/internal/document/report"
)

// A Checker finds documents that are not strict JSON objects. Only one goroutine at a time may use
// it. It reuses its memory, which the garbage collector frees with it.
type Checker struct{ d *C.doc }

// NewChecker returns a Checker.
func NewChecker() *Checker {
	d := C.doc_new(1<<31, nil, 0)
	if d == nil {
		panic("document: out of memory")
	}
	c := &Checker{d: d}
	runtime.AddCleanup(c, func(d *C.doc) { C.doc_free(d) }, d)
	return c
}

// Check returns the documents that are not strict JSON objects. An error means that memory is
// exhausted, not that a document is invalid.
func (c *Checker) Check(data []byte, ends []uint32) (rejected []Rejected, err error) {
	defer runtime.KeepAlive(c)
	for row := C.uint32_t(0); int(row) < len(ends); row++ {
		fault := C.check_rows(c.d, (*C.char)(unsafe.Pointer(unsafe.SliceData(data))),
			(*C.uint32_t)(unsafe.SliceData(ends)), C.uint32_t(len(ends)), &row)
		switch fault {
		case 0:
			return rejected, nil
		case C.DOC_NO_MEMORY:
			return nil, ErrMemory
		}
		reason := report.SyntaxError{Code: report.Code(fault), Offset: int(c.d.offset)}
		rejected = append(rejected, Rejected{Row: int(row), Column: -1, Reason: reason.Error()})
	}
	return rejected, nil
}
