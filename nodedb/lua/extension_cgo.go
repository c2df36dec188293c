//go:build cgo && luajit && lmdb

package lua

// #cgo CFLAGS: -O2 -Wall -Wextra
// #include <stdlib.h>
// #include "extension.h"
import "C"

import (
	"errors"
	"time"
	"unsafe"

	_ "github.com/perigeedb/perigee/internal/luajit/extension" // extension.h
	"github.com/perigeedb/perigee/nodedb"
)

// open returns a plua_extension for one engine. Without a store, sessions are attached to it.
func open(store unsafe.Pointer) (extension unsafe.Pointer, err error) {
	c := C.ndb_extension_new((*C.ndb_functions)(nodedb.Functions()), (*C.ndb_store)(store))
	if c == nil {
		return nil, errors.New("out of memory: cannot add the node database's modules")
	}
	return unsafe.Pointer(c), nil
}

// addReader lets the scripts of an extension read another state. After an error the extension is
// freed.
func addReader(extension unsafe.Pointer, name string, renew time.Duration) error {
	x, c := (*C.plua_extension)(extension), C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.ndb_extension_read(x, c, C.int64_t(renew.Milliseconds())) == 0 {
		C.ndb_extension_free(x)
		return errors.New("out of memory: cannot add the states of other pipelines")
	}
	return nil
}
