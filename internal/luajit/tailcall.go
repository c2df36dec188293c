//go:build cgo && luajit

package luajit

// #include "engine.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"
)

// TailCall returns the Go function with which the call ends, after Lua has finished the call.
// returned reports whether its results are the call's results; otherwise the call has none.
func (c *Caller) TailCall() (f *Function, returned bool) {
	e := c.Engine
	return &e.host.Functions[e.c.gocall.function-1], e.c.gocall.tail.results == C.PLUA_TAIL_RETURNED
}

// TailCallArgs returns its arguments.
func (c *Caller) TailCallArgs() ([]any, error) {
	request := &c.Engine.c.gocall.request
	if request.len == 0 {
		return nil, nil
	}
	return decodeValues(unsafe.Slice((*byte)(unsafe.Pointer(request.data)), int(request.len)))
}

// TailCallContext returns the context for the last function, if it does not wait. The VM has
// finished, so the function gets the time limit of a whole call. The limit starts with its first
// call of Err, since reading the clock here would cost as much as a short call.
func (c *Caller) TailCallContext(ctx context.Context) context.Context {
	e := c.Engine
	e.computing = FunctionContext{Context: ctx, vm: e.VM, time: e.VM.opts.EventTime}
	return &e.computing
}

// A Place is a place in a script where it called a Go function. The zero value is an unknown place.
type Place struct {
	File           string // the required file; "" for the script's own text
	line, function int
}

// TailCallPlace returns the place where the script called the last function, if that Waits.
func (c *Caller) TailCallPlace() Place {
	last := &c.Engine.c.gocall.tail
	p := Place{line: int(last.line), function: int(last.function)}
	if last.file != nil {
		p.File = C.GoString(last.file)
	}
	return p
}

// LocateTailCall is TailCallPlace for a function that does not wait. Call it before the VM does
// anything else.
func (c *Caller) LocateTailCall() Place {
	C.plua_tail_call_locate(c.Engine.c)
	return c.TailCallPlace()
}

// Error returns an error raised at the place. script is the name of the script's own text.
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

// AppendReturned is AppendValue for a value as it would be after passing through Lua, whose tables
// cannot contain nil.
func AppendReturned(out []byte, v any) []byte { return encodeValue(out, withoutNils(v)) }

// withoutNils returns v without nils in maps and at the end of lists.
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
