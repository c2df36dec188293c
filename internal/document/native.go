//go:build cgo

package document

// #include "document.h"
import "C"

import "unsafe"

// Functions returns the C interface, a doc_api of document.h, for C code in other packages.
func Functions() unsafe.Pointer { return unsafe.Pointer(C.doc_functions()) }
