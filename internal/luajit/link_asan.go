//go:build cgo && luajit && asan

package luajit

// Under -asan the VM itself is instrumented: tools/luajit/build.sh asan.

/*
#cgo CFLAGS: -I${SRCDIR}/../../.build/luajit-asan/include -O2 -Wall -Wextra
#cgo LDFLAGS: ${SRCDIR}/../../.build/luajit-asan/lib/libluajit.a -lm -ldl
*/
import "C"
