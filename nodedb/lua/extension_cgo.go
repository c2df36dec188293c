//go:build cgo && luajit && lmdb

package lua

// #cgo CFLAGS: -O2 -Wall -Wextra
// #include "extension.h"
import "C"

import (
	"errors"
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
