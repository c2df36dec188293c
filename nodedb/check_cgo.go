//go:build cgo && lmdb

package nodedb

// #include <stdint.h>
import "C"

import "runtime/cgo"

// ndb_report_fault receives each fault from ndb_check; handle refers to a func(string).
//
//export ndb_report_fault
func ndb_report_fault(handle C.uintptr_t, line *C.char) C.int {
	cgo.Handle(handle).Value().(func(string))(C.GoString(line))
	return 0
}
