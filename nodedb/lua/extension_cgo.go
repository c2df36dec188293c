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

// Open returns a plua_extension of internal/luajit/extension/extension.h for one engine. The engine
// closes it and then calls release; until then, closing the store fails.
func (e Extension) Open() (extension unsafe.Pointer, release func(), err error) {
	store, release, err := e.store.Native()
	if err != nil {
		return nil, nil, err
	}
	c := C.ndb_extension_new((*C.ndb_functions)(nodedb.Functions()), (*C.ndb_store)(store))
	if c == nil {
		release()
		return nil, nil, errors.New("out of memory: cannot add the node database's modules")
	}
	return unsafe.Pointer(c), release, nil
}
