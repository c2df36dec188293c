//go:build !cgo || !luajit || !lmdb

package lua

import (
	"time"
	"unsafe"

	"github.com/perigeedb/perigee/nodedb"
)

// open fails: this build has no LuaJIT, or no node database.
func open(unsafe.Pointer) (extension unsafe.Pointer, err error) {
	return nil, &nodedb.Error{Op: "add the modules to a script", Err: nodedb.ErrUnavailable}
}

func addReader(unsafe.Pointer, string, time.Duration) error { return nodedb.ErrUnavailable }
