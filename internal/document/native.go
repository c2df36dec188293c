//go:build cgo

package document

// #include "document.h"
import "C"

import "unsafe"

// Functions is the C interface, a doc_api of document.h, for code in C that is
// linked apart.
func Functions() unsafe.Pointer { return unsafe.Pointer(C.doc_functions()) }
