//go:build cgo && luajit

package luajit

/*
#include "vm.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// A Kind classifies an error. Kinds from EventTime on are limits.
type Kind uint32

const (
	OK        Kind = C.PLUA_OK
	Syntax    Kind = C.PLUA_SYNTAX
	Runtime   Kind = C.PLUA_ERROR
	Stack     Kind = C.PLUA_STACK
	EventTime Kind = C.PLUA_EVENT_TIME
	BatchTime Kind = C.PLUA_BATCH_TIME
	Memory    Kind = C.PLUA_MEMORY
	Output    Kind = C.PLUA_OUTPUT
)

// Limit reports whether the kind is a limit, after which a VM is broken.
func (k Kind) Limit() bool { return k >= EventTime }

func (k Kind) String() string {
	names := [...]string{"ok", "syntax", "error", "stack overflow", "event time", "batch time", "memory", "output"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", uint32(k))
	}
	return names[k]
}

// An Error describes an error of a script and its place.
type Error struct {
	Kind      Kind
	File      string // the required file that Line is in; "" for the script's own text
	Line      int    // in the script; 0 if unknown
	Message   string
	Traceback string
}

func (f *Error) Error() string {
	if f.Line == 0 {
		return f.Message
	}
	return fmt.Sprintf("line %d: %s", f.Line, f.Message)
}

// fault converts the result of a call to an error that owns its memory.
func (vm *VM) fault(kind C.int) error {
	if kind == C.PLUA_OK {
		return nil
	}
	f := &vm.c.error
	return &Error{
		Kind:      Kind(f.kind),
		File:      C.GoString(&f.file[0]),
		Line:      int(f.line),
		Message:   string(unsafe.Slice((*byte)(unsafe.Pointer(&f.message[0])), int(f.message_len))),
		Traceback: string(unsafe.Slice((*byte)(unsafe.Pointer(&f.traceback[0])), int(f.traceback_len))),
	}
}
