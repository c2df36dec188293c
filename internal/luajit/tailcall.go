//go:build cgo && luajit

package luajit

// #include "engine.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"
)

// TailCall is the function of Go that a call ends with, when Lua is done with the call.
// Whether its results are those of the call, which has none otherwise, is returned.
func (c *Caller) TailCall() (f *Function, returned bool) {
	e := c.Engine
	return &e.host.Functions[e.c.gocall.function-1], e.c.gocall.tail.results == C.PLUA_TAIL_RETURNED
}

// TailCallArgs are its arguments.
func (c *Caller) TailCallArgs() ([]any, error) {
	request := &c.Engine.c.gocall.request
	if request.len == 0 {
		return nil, nil
	}
	return decodeValues(unsafe.Slice((*byte)(unsafe.Pointer(request.data)), int(request.len)))
}

// TailCallContext is the context of the last function, if that does not wait. The VM has nothing left to
// do, so the function has the time of a call for itself. To ask for the time here would cost as much as a
// short call.
func (c *Caller) TailCallContext(ctx context.Context) context.Context {
	e := c.Engine
	e.computing = FunctionContext{Context: ctx, vm: e.VM, time: e.VM.opts.EventTime}
	return &e.computing
}

// A Place is where a script called a function of Go. The zero value is nowhere.
type Place struct {
	File           string // that the script required; "" for its own text
	line, function int
}

// TailCallPlace is where the script called the last function, one that Waits.
func (c *Caller) TailCallPlace() Place {
	last := &c.Engine.c.gocall.tail
	p := Place{line: int(last.line), function: int(last.function)}
	if last.file != nil {
		p.File = C.GoString(last.file)
	}
	return p
}

// LocateTailCall is LastPlace for one that does not, as long as the VM has done
// nothing since.
func (c *Caller) LocateTailCall() Place {
	C.plua_tail_call_locate(c.Engine.c)
	return c.TailCallPlace()
}

// Error is an error raised there. script is the name of the script's own text.
func (p Place) Error(script string, err error) *Error {
	f := &Error{Kind: Runtime, Line: p.line, File: p.File, Message: err.Error()}
	if p.line > 0 {
		if p.File != "" {
			script = p.File
		}
		f.Traceback = fmt.Sprintf("  %s:%d: in function at line %d", script, p.line, p.function)
	}
	return f
}

// AppendReturned is AppendValue as if v had passed through Lua, whose tables hold no
// nil.
func AppendReturned(out []byte, v any) []byte { return encodeValue(out, withoutNils(v)) }

// withoutNils is v without the nils at the end of lists and in maps.
func withoutNils(v any) any {
	switch v := v.(type) {
	case []any:
		n := len(v)
		for n > 0 && v[n-1] == nil {
			n--
		}
		list := make([]any, n)
		for i := range list {
			list[i] = withoutNils(v[i])
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(v))
		for key, value := range v {
			if value != nil {
				fields[key] = withoutNils(value)
			}
		}
		return fields
	}
	return v
}
