//go:build cgo && luajit

package luajit

/*
#include <luajit.h>
*/
import "C"

// Version names the LuaJIT that is linked in.
func Version() string { return C.LUAJIT_VERSION }
