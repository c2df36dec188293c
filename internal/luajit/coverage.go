//go:build cgo && luajit

package luajit

/*
#include "vm.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// Cover makes the VM record the lines that run, for ReadLines. The VM must not compile: compiled
// code calls no hooks.
func (vm *VM) Cover() { C.plua_vm_cover(vm.c, C.PLUA_COVERS) }

// CoverTimes is Cover, and measures how long lines run. That takes time itself, which does not count.
func (vm *VM) CoverTimes() { C.plua_vm_cover(vm.c, C.PLUA_TIMES) }

// A Line is a line of a script that ran.
type Line struct {
	File string // that the script required, or "" for its own text
	Line int
	Runs int           // a line counts again when a function returns to it
	Time time.Duration // of the processor until the next line ran; 0 without CoverTimes
}

// ReadLines passes the lines that ran since the last call to take.
func (vm *VM) ReadLines(take func(Line)) {
	readLines(&vm.c.lines, "", take)
	for file := vm.c.files; file != nil; file = file.next {
		readLines(&file.lines, C.GoString(&file.chunk[1]), take)
	}
}

func readLines(lines *C.plua_lines, file string, take func(Line)) {
	all := unsafe.Slice(lines.all, int(lines.count))
	for line := range all {
		if one := &all[line]; one.runs > 0 {
			take(Line{file, line, int(one.runs), time.Duration(one.ns)})
			one.runs, one.ns = 0, 0
		}
	}
}
