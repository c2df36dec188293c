//go:build cgo && luajit

package luajit

// #include "frontend.h"
import "C"

import "unsafe"

// perigee_direct calls the function that a script running in a crossing asks for.
//
//export perigee_direct
func perigee_direct(engine unsafe.Pointer) C.int {
	e := (*Engine)(engine)
	var args, results []any
	var err error
	if n := int(e.c.request.len); n > 0 {
		args, err = decodeValues(unsafe.Slice((*byte)(unsafe.Pointer(e.c.request.data)), n))
	}
	if err == nil {
		results, err = e.host.Functions[e.c.function-1].Call(e.ctx, args)
	}
	if err == nil && len(results) == 0 {
		return 0
	}
	e.cause = err
	e.answer = answerOf(e.answer, results, err)
	C.direct_answer(e.c, text(unsafe.String(unsafe.SliceData(e.answer), len(e.answer))), C.size_t(len(e.answer)))
	return 1
}

// answerOf is how results or an error cross.
func answerOf(answer []byte, results []any, err error) []byte {
	if err != nil {
		return append(append(answer[:0], 'E'), err.Error()...)
	}
	return encodeValues(append(answer[:0], 'V'), results)
}
