//go:build cgo && luajit && !asan

package luajit

/*
#cgo CFLAGS: -I${SRCDIR}/../../.build/luajit/include -O2 -Wall -Wextra
#cgo LDFLAGS: ${SRCDIR}/../../.build/luajit/lib/libluajit.a -lm -ldl
*/
import "C"
