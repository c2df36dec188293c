//go:build cgo && luajit

package luajit

// #include "engine.h"
import "C"

import (
	"errors"
	"unsafe"
)

// plua_call_go calls the function that a running script has requested.
//
//export plua_call_go
func plua_call_go(engine unsafe.Pointer) C.int {
	e := (*Engine)(engine)
	var args, results []any
	var err error
	if n := int(e.c.gocall.request.len); n > 0 {
		args, err = decodeValues(unsafe.Slice((*byte)(unsafe.Pointer(e.c.gocall.request.data)), n))
	}
	if err == nil {
		e.computing = FunctionContext{Context: e.ctx, vm: e.VM}
		results, err = e.host.Functions[e.c.gocall.function-1].Call(&e.computing, args)
	}
	if errors.Is(err, ErrMemory) {
		C.plua_vm_stop(e.VM.c, C.PLUA_MEMORY)
	}
	if err == nil && len(results) == 0 {
		return 0
	}
	e.cause = err
	e.answer = encodeAnswer(e.answer, results, err)
	C.plua_gocall_answer(e.c, text(unsafe.String(unsafe.SliceData(e.answer), len(e.answer))), C.size_t(len(e.answer)))
	return 1
}

// encodeAnswer encodes results or an error for the script.
func encodeAnswer(answer []byte, results []any, err error) []byte {
	if err != nil {
		return append(append(answer[:0], 'E'), err.Error()...)
	}
	return encodeValues(append(answer[:0], 'V'), results)
}
