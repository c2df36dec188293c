//go:build cgo

package document

// #include "document.h"
//
// // check indexes the text with a document of its own.
// static int check(const char *text, size_t len, uint32_t *offset) {
//	doc *d = doc_new(len + 64, NULL, 0);
//	if (!d) return DOC_NO_MEMORY;
//	int fault = doc_index(d, text, len, text + len);
//	*offset = d->offset;
//	doc_free(d);
//	return fault;
// }
import "C"

import (
	"unsafe"

	"github.com/perigeedb/perigee/internal/document/report"
)

// Check tells whether doc is strict JSON and an object. An error about the text
// is a *report.SyntaxError.
func Check(doc []byte) error {
	var offset C.uint32_t
	fault := C.check((*C.char)(unsafe.Pointer(unsafe.SliceData(doc))), C.size_t(len(doc)), &offset)
	switch fault {
	case 0:
		return nil
	case C.DOC_NO_MEMORY:
		return ErrMemory
	}
	return &report.SyntaxError{Code: report.Code(fault), Offset: int(offset)}
}
