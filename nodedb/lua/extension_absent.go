//go:build !cgo || !luajit || !lmdb

package lua

import (
	"unsafe"

	"github.com/perigeedb/perigee/nodedb"
)

// Open fails: this build has no LuaJIT, or no node database.
func (Extension) Open() (extension unsafe.Pointer, release func(), err error) {
	return nil, nil, &nodedb.Error{Op: "add the modules to a script", Err: nodedb.ErrUnavailable}
}
