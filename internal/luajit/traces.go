//go:build cgo && luajit

package luajit

/*
#include "traces.h"
*/
import "C"

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed traces.lua
var traces string

// A TraceRecorder hears what the compiler makes of the code of one engine.
type TraceRecorder struct {
	vm  *VM
	ref C.int
}

// RecordTraces makes an engine whose script is not loaded yet tell what its compiler does.
// That costs time and memory of the VM.
func (e *Engine) RecordTraces() (*TraceRecorder, error) {
	l := &TraceRecorder{vm: e.VM}
	e.VM.begin()
	kind := C.plua_traces_record(e.VM.c, text(traces), C.size_t(len(traces)), &l.ref)
	e.VM.end()
	return l, e.VM.fault(kind)
}

// What the compiler can be heard of.
const (
	Compiled = "compiled" // a trace; About is how it ends
	Left     = "left"     // a compiled trace ends in what the interpreter does, which About names
	Aborted  = "abort"    // the recording of a trace was given up, for Reason
	Inside   = "inside"   // the same, in what the script calls and is ours
	Flushed  = "flush"    // all compiled code was thrown away
)

// A TraceEvent is something that the compiler did at a place.
type TraceEvent struct {
	What    string
	Reason  string // as LuaJIT words it, with a %s or %d where About belongs
	Subject string // the name of a function or a bytecode
	File    string // "" when it was in no script
	Line    int
	Count   int
}

// Events returns what happened until now, in no order.
func (l *TraceRecorder) Events() ([]TraceEvent, error) {
	l.vm.begin()
	kind := C.plua_traces_recorded(l.vm.c, l.ref)
	l.vm.end()
	if err := l.vm.fault(kind); err != nil {
		return nil, err
	}
	all := C.GoString(C.lua_tolstring(l.vm.c.L, -1, nil))
	C.lua_settop(l.vm.c.L, -2)
	var heard []TraceEvent
	for line := range strings.Lines(all) {
		one, err := traceEvent(strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		if err != nil {
			return nil, err
		}
		heard = append(heard, one)
	}
	return heard, nil
}

// traceEvent reads a line that traces.lua has written.
func traceEvent(fields []string) (TraceEvent, error) {
	if len(fields) != 6 {
		return TraceEvent{}, fmt.Errorf("read what the compiler did: %q", fields)
	}
	e := TraceEvent{What: fields[0], Reason: fields[1], Subject: fields[2], File: fields[3]}
	e.Line, _ = strconv.Atoi(fields[4])
	e.Count, _ = strconv.Atoi(fields[5])
	if e.What == Aborted || e.What == Inside {
		e.translate()
	}
	return e, nil
}

// translate replaces numbers of LuaJIT's by words. What is no number is a message.
func (e *TraceEvent) translate() {
	number, err := strconv.ParseUint(e.Reason, 10, 31)
	if err != nil {
		return
	}
	if text := C.plua_traces_reason(C.uint(number)); text != nil {
		e.Reason = C.GoString(text)
	}
	if !strings.Contains(e.Reason, "bytecode") {
		return
	}
	if number, err = strconv.ParseUint(e.Subject, 10, 31); err == nil {
		if name := C.plua_traces_bytecode_name(C.uint(number)); name != nil {
			e.Subject = C.GoString(name)
		}
	}
}
