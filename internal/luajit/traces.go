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

// A TraceRecorder records the events of the compiler in one engine.
type TraceRecorder struct {
	vm  *VM
	ref C.int
}

// RecordTraces starts to record compiler events in an engine that has no script yet. Recording
// costs time and memory of the VM.
func (e *Engine) RecordTraces() (*TraceRecorder, error) {
	l := &TraceRecorder{vm: e.VM}
	e.VM.begin()
	kind := C.plua_traces_record(e.VM.c, text(traces), C.size_t(len(traces)), &l.ref)
	e.VM.end()
	return l, e.VM.fault(kind)
}

// Events of the compiler.
const (
	Compiled = "compiled" // a trace was compiled; Subject is how it ends
	Left     = "left"     // a compiled trace ends in the interpreter, because of Subject
	Aborted  = "abort"    // the recording of a trace was aborted, for Reason
	Inside   = "inside"   // the same, inside one of our own functions that the script calls
)

// A TraceEvent is an event of the compiler at a place in the script.
type TraceEvent struct {
	What    string
	Reason  string // LuaJIT's wording, with %s or %d in place of Subject
	Subject string // the name of a function or a bytecode
	File    string // "" if it was not in a script
	Line    int
	Count   int
}

// Events returns the events so far, in no particular order.
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

// traceEvent parses a line from traces.lua.
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

// translate replaces LuaJIT's numbers with words. A reason that is not a number is a message.
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
